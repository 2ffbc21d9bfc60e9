//! The beginning of most integration tests: a folder of configuration, an agent that serves it, and a client.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Method;
use nudge_protocol::status::{ConfigStatus, ContainerStatus, NotificationStatus, Problem, Status};
use nudge_protocol::webhooks::WebhookView;

use crate::{Access, Agent, Client, ConfigDir, ExecCommand, Reply, binary, eventually};

/// How long anything may take that should be there at once, on a busy machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running agent with all that a test needs to change its configuration and to look at it.
pub struct AgentUnderTest {
    /// The agent, which is to end before its folder goes.
    pub agent: Agent,
    /// The folder with the configuration.
    pub dir: ConfigDir,
    /// What the child was given.
    pub access: Access,
    /// A client with the token.
    pub client: Client,
}

impl AgentUnderTest {
    /// Returns a config `shop` with the versions 1.0.0 (current), 1.0.1 and 1.0.2, each with its own `lives`.
    pub fn shop() -> Result<ConfigDir> {
        let dir = ConfigDir::new()?;
        for (version, lives) in [("1.0.0", "3"), ("1.0.1", "5"), ("1.0.2", "7")] {
            dir.write_version("shop", version, [("lives", lives)])?;
        }
        dir.switch("shop", "1.0.0")?;
        Ok(dir)
    }

    /// Runs `child` under an agent that serves `dir` and is given `arguments`.
    pub async fn start<S: AsRef<OsStr>>(dir: ConfigDir, arguments: &[&str], child: &[S]) -> Result<Self> {
        Self::start_with(dir, |exec| exec.args(arguments), child).await
    }

    /// Returns the same with more to set than arguments.
    pub async fn start_with<S: AsRef<OsStr>>(
        dir: ConfigDir,
        set: impl FnOnce(ExecCommand) -> ExecCommand,
        child: &[S],
    ) -> Result<Self> {
        let (agent, access) = set(ExecCommand::new(binary::debug()?, dir.path())).start(child).await?;
        let client = Client::new(&access)?;
        Ok(Self { agent, dir, access, client })
    }

    /// Waits until the endpoint serves exactly these configs, such as `shop=1.0.1`. It looks at the status, so that it
    /// does not count as a container's request.
    pub async fn wait_until_served(&mut self, configs: &str) -> Result<()> {
        let description = format!("the endpoint serves {configs}");
        self.status_when(&description, |status| versions(status) == configs).await?;
        Ok(())
    }

    /// Waits until a key has this value.
    pub async fn serves_value(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let path = format!("/config/{key}");
        let description = format!("the endpoint serves another value of {key}");
        let served = eventually(WAIT_TIMEOUT, &description, async || {
            let reply = self.client.get(&path).await.ok()?;
            (reply.body == value).then_some(())
        });
        served.await.map_err(|error| self.agent.explain(&error))
    }

    /// Waits until `/status` is as expected.
    pub async fn status_when(&mut self, what: &str, expected: impl Fn(&Status) -> bool) -> Result<Status> {
        let mut last = None;
        let result = eventually(WAIT_TIMEOUT, what, async || {
            last = Some(self.client.status().await);
            last.as_ref()?.as_ref().ok().filter(|status| expected(status)).cloned()
        });
        result.await.map_err(|error| self.agent.explain(&error.context(format!("the last status was {last:?}"))))
    }

    /// Waits until a config has a problem whose message holds `part`.
    pub async fn problem(&mut self, config: &str, part: &str) -> Result<Problem> {
        let problem_of = |status: &Status| {
            let config = status.configs.iter().find(|one| one.name.as_str() == config);
            config.and_then(|config| config.problem.clone()).filter(|problem| problem.message.contains(part))
        };
        let description = format!("{config} has a problem with {part:?}");
        let status = self.status_when(&description, |status| problem_of(status).is_some()).await?;
        problem_of(&status).ok_or_else(|| anyhow::anyhow!("the problem is gone"))
    }

    /// Waits until no config has a problem.
    pub async fn all_is_well(&mut self) -> Result<Status> {
        self.status_when("all is well", |status| status.configs.iter().all(|config| config.problem.is_none())).await
    }

    /// Waits until the notification of the only container is as `expected`.
    pub async fn notified_when(
        &mut self,
        what: &str,
        expected: impl Fn(&NotificationStatus) -> bool,
    ) -> Result<ContainerStatus> {
        let status = self.status_when(what, |status| expected(&status.containers[0].notified)).await?;
        Ok(status.containers[0].clone())
    }

    /// Waits until the child's output is as expected, and gives it.
    pub async fn output_when(&mut self, what: &str, expected: impl Fn(&str) -> bool) -> Result<String> {
        let result =
            eventually(WAIT_TIMEOUT, what, async || Some(self.agent.output()).filter(|output| expected(output)));
        let output = result.await;
        output.map_err(|error| self.agent.explain(&error.context(format!("the output was {:?}", self.agent.output()))))
    }

    /// Waits until the child has written `count` lines that end in `end`.
    pub async fn wait_for_lines(&mut self, count: usize, end: &str) -> Result<String> {
        let description = format!("{count} lines {end:?} from the child");
        self.output_when(&description, |output| output.lines().filter(|line| line.ends_with(end)).count() >= count)
            .await
    }

    /// Waits until the application is ready, and gives its process id: the first word of the line.
    pub async fn ready(&mut self) -> Result<i32> {
        let output = self.wait_for_lines(1, "ready").await?;
        let line = output.lines().find(|line| line.ends_with("ready")).unwrap_or_default();
        line.split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .with_context(|| format!("{line:?} names no process"))
    }

    /// Waits until the agent's log holds `part`.
    pub async fn logs(&self, part: &str) -> Result<()> {
        let description = format!("the log says {part:?}");
        let logged = eventually(WAIT_TIMEOUT, &description, async || self.agent.log().contains(part).then_some(()));
        logged.await.map_err(|error| self.agent.explain(&error))
    }

    /// Sends a request with a body.
    pub async fn send(&mut self, method: Method, path: &str, body: String) -> Result<Reply> {
        let request = self.client.request(method, path).body(Full::new(Bytes::from(body)))?;
        self.client.send(request).await
    }

    /// Subscribes a webhook, and gives the reply.
    pub async fn subscribe(&mut self, url: &str) -> Result<Reply> {
        self.send(Method::POST, "/hooks", format!(r#"{{"url": "{url}"}}"#)).await
    }

    /// Subscribes a webhook that must be taken.
    pub async fn subscribed(&mut self, url: &str) -> Result<WebhookView> {
        let reply = self.subscribe(url).await?;
        anyhow::ensure!(reply.status == 201, "{}: {:?}", reply.status, reply.body);
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Waits until the notification of the webhook is as `expected`.
    pub async fn hook_when(
        &mut self,
        id: &str,
        what: &str,
        expected: impl Fn(&NotificationStatus) -> bool,
    ) -> Result<NotificationStatus> {
        let notification_of =
            |status: &Status| status.hooks.iter().find(|hook| hook.id == id).map(|hook| hook.notified.clone());
        let status = self
            .status_when(what, |status| notification_of(status).is_some_and(|notified| expected(&notified)))
            .await?;
        notification_of(&status).ok_or_else(|| anyhow::anyhow!("the webhook is gone"))
    }
}

/// Returns the configs of a status with their versions, such as `shop=1.0.1,web=2`.
fn versions(status: &Status) -> String {
    let one = |config: &ConfigStatus| format!("{}={}", config.name, config.version);
    status.configs.iter().map(one).collect::<Vec<_>>().join(",")
}
