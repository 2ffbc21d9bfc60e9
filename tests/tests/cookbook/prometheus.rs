//! Prometheus: a Go program that handles SIGHUP.

use anyhow::Result;

use crate::http;
use crate::load::Load;
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn prometheus() -> Result<()> {
    let Some(recipe) = Recipe::find("prometheus", "prometheus", &["prometheus", "wrk"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || Ok(http::get(port, "/api/v1/status/config")?.1.contains("greeting: welcome"));
    wait_until_serving(&software, &false, look).await?;
    twenty_switches(&mut software, Load::wrk(port, "/api/v1/query?query=vector(1)"), [false, true], look).await?;
    software.keeps_what_it_has(("prometheus.yml", "nonsense\n"), "Error reloading config", look).await
}
