//! Gunicorn: an application that only reads its environment, by SIGHUP.

use anyhow::Result;

use crate::http;
use crate::load::Load;
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn gunicorn() -> Result<()> {
    let Some(recipe) = Recipe::find("gunicorn", "gunicorn", &["gunicorn", "wrk"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let look = async || http::body(port);
    wait_until_serving(&software, &"hello\n".to_owned(), look).await?;
    let expected = ["hello\n", "welcome\n"].map(str::to_owned);
    twenty_switches(&mut software, Load::wrk(port, "/"), expected, look).await?;
    software.switch_until_ended(("gunicorn.conf.py", "nonsense\n"), 1).await
}
