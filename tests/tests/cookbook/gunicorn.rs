//! Gunicorn: an application that only reads its environment, by SIGHUP.

use anyhow::Result;

use crate::http;
use crate::load::Load;
use crate::measure::{serves, twenty_switches};
use crate::recipe::Recipe;

#[tokio::test]
async fn gunicorn() -> Result<()> {
    let Some(recipe) = Recipe::find("gunicorn", "gunicorn", &["gunicorn", "wrk"])? else { return Ok(()) };
    let mut kitchen = recipe.start().await?;
    let port = kitchen.port;
    let look = async || http::body(port);
    serves(&kitchen, &"hello\n".to_owned(), look).await?;
    let expected = ["hello\n", "welcome\n"].map(str::to_owned);
    twenty_switches(&mut kitchen, Load::wrk(port, "/"), expected, look).await?;
    kitchen.ends(("gunicorn.conf.py", "nonsense\n")).await
}
