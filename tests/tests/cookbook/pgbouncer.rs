//! PgBouncer: a database moves to another one, while clients stay connected.

use anyhow::Result;

use crate::measure::{twenty_switches, wait_until_serving};
use crate::psql::{Psql, pgbench};
use crate::recipe::Recipe;

const QUERY: &str = "SELECT current_database()";

#[tokio::test]
async fn pgbouncer() -> Result<()> {
    let tools = ["pgbouncer", "psql", "pgbench"];
    let Some(recipe) = Recipe::find("pgbouncer", "pgbouncer", &tools)? else { return Ok(()) };
    let Some(behind) = Recipe::find("postgresql", "postgresql-15", &tools)? else { return Ok(()) };
    let behind = behind.start().await?;
    wait_until_serving(&behind, &"1".to_owned(), async || Psql::connect(behind.port, "postgres")?.ask("SELECT 1"))
        .await?;
    for database in ["blue", "green"] {
        Psql::connect(behind.port, "postgres")?.ask(&format!("CREATE DATABASE {database}; SELECT 1"))?;
    }
    let port = format!("port={}", behind.port);
    let mut software = recipe.start_beside(&behind, |text| text.replace("port=5432", &port)).await?;
    let port = software.port;
    let expected = ["blue", "green"].map(str::to_owned);
    wait_until_serving(&software, &expected[0], async || Psql::connect(port, "shop")?.ask(QUERY)).await?;
    // A client that was there before. If it loses its connection, it connects again, and that is counted.
    let mut client = Psql::connect(port, "shop")?;
    let mut look = async || {
        let seen = client.ask(QUERY);
        if seen.is_err() {
            client = Psql::connect(port, "shop")?;
        }
        seen
    };
    let load = pgbench(&software, "shop")?;
    twenty_switches(&mut software, load, expected, &mut look).await?;
    software.keeps_what_it_has(("pgbouncer.ini", "nonsense\n"), "config file loading failed", look).await
}
