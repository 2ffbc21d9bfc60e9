//! A JVM: a webhook, whose answer says whether the application has taken the files.

use anyhow::Result;

use crate::http;
use crate::load::{Count, Load};
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

/// Requests of one round, each over a connection of its own: the JDK's server does not say that it closes one, which
/// `wrk` counts as a fault.
const REQUESTS: u64 = 20;

#[tokio::test]
async fn jvm() -> Result<()> {
    let Some(recipe) = Recipe::find("jvm", "openjdk-17-jre-headless", &["javac"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || http::body(port);
    let expected = ["hello\n", "welcome\n"].map(str::to_owned);
    wait_until_serving(&software, &expected[0], look).await?;
    let load = Load::rounds(move || {
        let answers = (0..REQUESTS).filter(|_| http::body(port).is_ok()).count().try_into()?;
        Ok(Count { done: answers, dropped: REQUESTS - answers, ..Count::default() })
    });
    twenty_switches(&mut software, load, expected, look).await?;
    software.keeps_what_it_has(("lives", "many"), "NumberFormatException", look).await
}
