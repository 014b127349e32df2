//! The doorbell: rings on a commit while some session sleeps. Needs no runtime.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use async_trait::async_trait;
use postrider_store::{StoreError, sessions::Listener};

#[derive(Debug, Default)]
pub(crate) struct Doorbell(Mutex<Rings>);

#[derive(Debug, Default)]
struct Rings {
    rung: u64,
    waiting: Vec<Waker>,
}

impl Doorbell {
    pub(crate) fn ring(&self) {
        let mut rings = self.0.lock().expect("no panic while ringing");
        rings.rung += 1;
        rings.waiting.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn listen(self: &Arc<Self>) -> Box<dyn Listener> {
        let heard = self.0.lock().expect("no panic while ringing").rung;
        Box::new(Listening {
            doorbell: self.clone(),
            heard,
        })
    }
}

#[derive(Debug)]
struct Listening {
    doorbell: Arc<Doorbell>,
    heard: u64,
}

#[async_trait]
impl Listener for Listening {
    async fn rung(&mut self) -> Result<(), StoreError> {
        poll_fn(|context| {
            let mut rings = self.doorbell.0.lock().expect("no panic while ringing");
            if rings.rung > self.heard {
                self.heard = rings.rung;
                return Poll::Ready(Ok(()));
            }
            rings.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
