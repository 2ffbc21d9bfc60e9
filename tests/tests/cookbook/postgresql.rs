//! PostgreSQL: new settings reach the sessions that are open.

use anyhow::{Result, ensure};
use nudge_tests::agent::WAIT_TIMEOUT;
use nudge_tests::eventually;

use crate::measure::{twenty_switches, wait_until_serving};
use crate::psql::{Psql, pgbench};
use crate::recipe::Recipe;

const QUERY: &str = "SHOW work_mem";

#[tokio::test]
async fn postgresql() -> Result<()> {
    let Some(recipe) = Recipe::find("postgresql", "postgresql-15", &["psql", "pgbench"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let port = software.port;
    let expected = ["4MB", "8MB"].map(str::to_owned);
    wait_until_serving(&software, &expected[0], async || Psql::connect(port, "postgres")?.ask(QUERY)).await?;
    let mut session = Psql::connect(port, "postgres")?;
    let load = pgbench(&software, "postgres")?;
    twenty_switches(&mut software, load, expected, async || session.ask(QUERY)).await?;

    // What a reload can't change stays, and PostgreSQL says so.
    session.ask("ALTER SYSTEM SET max_connections = 50; SELECT pg_reload_conf()")?;
    let pending = "SELECT pending_restart FROM pg_settings WHERE name = 'max_connections'";
    let is_pending = async || (session.ask(pending).ok()? == "t").then_some(());
    eventually(WAIT_TIMEOUT, "max_connections waits for a restart", is_pending).await?;
    let connections = session.ask("SHOW max_connections")?;
    ensure!(connections == "100", "{connections}");
    software.keeps_what_it_has(("shop.conf", "nonsense\n"), "contains errors", async || session.ask(QUERY)).await
}
