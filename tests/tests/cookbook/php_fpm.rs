//! php-fpm behind nginx: pages get other variables, by SIGUSR2.

use std::fs;

use anyhow::Result;
use nudge_tests::ports;

use crate::http;
use crate::load::Load;
use crate::measure::{twenty_switches, wait_until_serving};
use crate::recipe::Recipe;

#[tokio::test]
async fn php_fpm() -> Result<()> {
    let Some(recipe) = Recipe::find("php-fpm", "php8.2-fpm", &["php-fpm8.2", "nginx", "wrk"])? else { return Ok(()) };
    let mut software = recipe.start().await?;
    let (folder, port) = (software.folder.display(), ports::free()?);
    let configuration = format!(
        "daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}
        http {{
            access_log off;
            client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
            uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
            server {{
                listen 127.0.0.1:{port};
                location / {{
                    include /etc/nginx/fastcgi_params;
                    fastcgi_param SCRIPT_FILENAME {};
                    fastcgi_pass 127.0.0.1:{};
                }}
            }}
        }}",
        software.recipe_file("index.php").display(),
        software.port,
    );
    let file = software.folder.join("nginx.conf");
    fs::write(&file, configuration)?;
    let _front = software.start_beside(
        "nginx",
        &["nginx".as_ref(), "-e".as_ref(), "stderr".as_ref(), "-c".as_ref(), file.as_os_str()],
    )?;
    let look = async || http::body(port);
    let expected = ["hello\n", "welcome\n"].map(str::to_owned);
    wait_until_serving(&software, &expected[0], look).await?;
    twenty_switches(&mut software, Load::wrk(port, "/"), expected, look).await?;
    software.switch_until_ended(("pool.conf", "nonsense = 1\n"), 78).await
}
