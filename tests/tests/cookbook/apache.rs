//! Apache: a graceful restart, by SIGUSR1.

use anyhow::Result;

use crate::http;
use crate::load::Load;
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn apache() -> Result<()> {
    let Some(recipe) = Recipe::find("apache", "apache2-bin", &["apache2", "wrk"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || Ok(http::get(port, "/")?.0.contains("Greeting: welcome"));
    wait_until_serving(&software, &false, look).await?;
    twenty_switches(&mut software, Load::wrk(port, "/"), [false, true], look).await?;
    software.switch_until_ended(("site.conf", "Nonsense\n"), 1).await
}
