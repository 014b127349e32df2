//! Creating the exchange or the queue that a destination names. Only ever by command, and never
//! altering what is there: AMQP cannot.

use postrider_transport::{Error, Provisioning};

use crate::{
    Place,
    ask::Talk,
    connection::{QueueType, Settings},
    link::Link,
};

pub(crate) async fn provision(
    link: &Link,
    place: &Place,
    settings: &Settings,
    how: Provisioning,
) -> Result<Vec<String>, Error> {
    let mut done = Vec::new();
    if !place.exchange.is_empty() && !exchange_is_there(link, &place.exchange).await? {
        let kind = settings.provision.exchange_type.word();
        if how == Provisioning::Make {
            let mut talk = Talk::begin(link).await?;
            talk.make_exchange(&place.exchange, kind).await?;
            talk.done();
        }
        done.push(format!(
            "create exchange {:?}: {kind}, durable; bind the queues of its consumers to it, or \
             every message comes back as unroutable",
            place.exchange
        ));
    }
    if let Some(queue) = &place.queue
        && !queue_is_there(link, queue).await?
    {
        let kind = match (place.stream, settings.provision.queue_type) {
            (true, _) => "stream",
            (false, QueueType::Quorum) => "quorum",
            (false, QueueType::Classic) => "classic",
        };
        if how == Provisioning::Make {
            let mut talk = Talk::begin(link).await?;
            talk.make_queue(queue, kind).await?;
            talk.done();
        }
        done.push(format!("create queue {queue:?}: {kind}, durable"));
    }
    Ok(done)
}

async fn exchange_is_there(link: &Link, exchange: &str) -> Result<bool, Error> {
    let mut talk = Talk::begin(link).await?;
    match talk.exchange_is_there(exchange).await {
        Ok(()) => {
            talk.done();
            Ok(true)
        }
        Err(refusal) if refusal.is_not_found() => Ok(false),
        Err(other) => Err(other.into()),
    }
}

async fn queue_is_there(link: &Link, queue: &str) -> Result<bool, Error> {
    let mut talk = Talk::begin(link).await?;
    match talk.messages_ready(queue).await {
        Ok(_) => {
            talk.done();
            Ok(true)
        }
        Err(refusal) if refusal.is_not_found() => Ok(false),
        Err(other) => Err(other.into()),
    }
}
