//! x
use crate::{
    args::Demo,
    fault::{Exit, Outcome},
};
use std::io::Write;
pub(crate) async fn run(_: &Demo, _: &mut dyn Write) -> Outcome {
    Ok(Exit::Done)
}
