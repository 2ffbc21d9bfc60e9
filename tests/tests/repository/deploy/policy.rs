//! Evaluates a ValidatingAdmissionPolicy (KEP-3488). The authorizer answers what the API server's has answered.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, Env, ExecutionError, Value as Cel};
use nudge_tests::policies::Recorded;
use serde_json::{Value, json};

/// A policy with its expressions.
#[derive(Debug)]
pub(crate) struct Policy {
    /// The name of the policy.
    pub(crate) name: String,
    spec: Value,
    /// The expressions that were evaluated without an error.
    evaluated: RefCell<BTreeSet<String>>,
}

/// What a policy says to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The policy does not concern the request.
    NotMatched,
    /// The policy allows the request.
    Allowed,
    /// Denied, with this message.
    Denied(String),
}

impl Policy {
    /// Returns the policies among these documents.
    pub(crate) fn all(documents: &str) -> Result<Vec<Self>> {
        let documents = serde_saphyr::from_multiple::<Value>(documents)?;
        let policies = documents.into_iter().filter(|document| document["kind"] == "ValidatingAdmissionPolicy");
        policies
            .map(|document| {
                let name = document["metadata"]["name"].as_str().context("a policy has no name")?.to_owned();
                Ok(Self { name, spec: document["spec"].clone(), evaluated: RefCell::default() })
            })
            .collect()
    }

    /// Returns the `matchConditions` of a webhook as a policy that allows what meets them.
    pub(crate) fn of_conditions(webhook: &Value) -> Self {
        let every = json!([{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}]);
        let spec = json!({"matchConstraints": {"resourceRules": every}, "matchConditions": webhook["matchConditions"]});
        Self { name: "conditions".to_owned(), spec, evaluated: RefCell::default() }
    }

    /// Returns what it says to a request.
    pub(crate) fn judge(&self, request: &Recorded) -> Result<Verdict> {
        if !self.is_about(request) {
            return Ok(Verdict::NotMatched);
        }
        if self.spec["paramKind"].is_null() {
            return self.judge_with(request, &Value::Null);
        }
        let mut verdict = Verdict::NotMatched;
        for params in &request.params {
            match self.judge_with(request, params)? {
                denied @ Verdict::Denied(_) => return Ok(denied),
                other => verdict = other,
            }
        }
        Ok(verdict)
    }

    /// Returns its expressions that no request has reached yet.
    pub(crate) fn untried_expressions(&self) -> Vec<String> {
        let evaluated = self.evaluated.borrow();
        self.expressions().into_iter().filter(|expression| !evaluated.contains(expression)).collect()
    }

    fn expressions(&self) -> Vec<String> {
        let lists = ["matchConditions", "variables", "validations"].map(|list| items(&self.spec[list]));
        let each = lists.into_iter().flatten().flat_map(|item| [&item["expression"], &item["messageExpression"]]);
        each.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Rules and selectors.
    fn is_about(&self, request: &Recorded) -> bool {
        let constraints = &self.spec["matchConstraints"];
        let review = &request.request;
        let is_expected = |list: &Value, value: &Value| items(list).iter().any(|it| it == value || it == "*");
        let resource = match review["subResource"].as_str().filter(|it| !it.is_empty()) {
            Some(sub) => json!(format!("{}/{sub}", review["resource"]["resource"].as_str().unwrap_or_default())),
            None => review["resource"]["resource"].clone(),
        };
        let ruled = items(&constraints["resourceRules"]).iter().any(|rule| {
            is_expected(&rule["apiGroups"], &review["resource"]["group"])
                && is_expected(&rule["resources"], &resource)
                && is_expected(&rule["operations"], &review["operation"])
        });
        // Either state of an object counts.
        let mut objects = [&review["object"], &review["oldObject"]].into_iter().filter(|object| !object.is_null());
        ruled
            && is_selected(&constraints["namespaceSelector"], &request.namespace)
            && objects.any(|object| is_selected(&constraints["objectSelector"], object))
    }

    fn judge_with(&self, request: &Recorded, params: &Value) -> Result<Verdict> {
        let env = Arc::new(env()?);
        let mut context = Context::with_env(Arc::clone(&env));
        functions(&mut context)?;
        let review = &request.request;
        let authorizer = Question { may: request.may.clone(), steps: BTreeMap::new() };
        context.add_variable_from_value("authorizer", Cel::Opaque(Arc::new(authorizer)));
        for (name, value) in [
            ("object", &review["object"]),
            ("oldObject", &review["oldObject"]),
            ("request", review),
            ("namespaceObject", &request.namespace),
            ("params", params),
        ] {
            context.add_variable(name, value.clone()).map_err(|error| anyhow::anyhow!("{name}: {error:?}"))?;
        }
        for condition in items(&self.spec["matchConditions"]) {
            if self.evaluate(&env, &context, &condition["expression"])? != Cel::Bool(true) {
                return Ok(Verdict::NotMatched);
            }
        }
        // The variables are evaluated in order, since a variable may use earlier variables. A variable that fails is
        // missing, which matters only to its users.
        let mut variables = Vec::new();
        for variable in items(&self.spec["variables"]) {
            let name = variable["name"].as_str().context("a variable has no name")?;
            if let Ok(value) = self.evaluate(&env, &context, &variable["expression"]) {
                variables.push((name.to_owned(), value));
                let bindings = variables.iter().map(|(name, value)| (name.clone().into(), value.clone())).collect();
                context.add_variable_from_value("variables", Cel::Map(cel::objects::Map { map: Arc::new(bindings) }));
            }
        }
        for validation in items(&self.spec["validations"]) {
            match self.evaluate(&env, &context, &validation["expression"])? {
                Cel::Bool(true) => {}
                Cel::Bool(false) => {
                    let message = match self.evaluate(&env, &context, &validation["messageExpression"])? {
                        Cel::String(message) => message.to_string(),
                        other => anyhow::bail!("the message of policy {} is {other:?}", self.name),
                    };
                    return Ok(Verdict::Denied(message));
                }
                other => anyhow::bail!("{} of policy {} is {other:?}", validation["expression"], self.name),
            }
        }
        Ok(Verdict::Allowed)
    }

    fn evaluate(&self, env: &Env, context: &Context, expression: &Value) -> Result<Cel> {
        let text = expression.as_str().with_context(|| format!("policy {} lacks an expression", self.name))?;
        let program = env.compile(text).map_err(|error| anyhow::anyhow!("{text}: {error}"))?;
        let value = program.execute(context).map_err(|error| anyhow::anyhow!("{text}: {error}"))?;
        self.evaluated.borrow_mut().insert(text.to_owned());
        Ok(value)
    }
}

/// Returns whether a label selector takes the object.
fn is_selected(selector: &Value, object: &Value) -> bool {
    let label = |name: &str| object["metadata"]["labels"].get(name);
    let equal =
        selector["matchLabels"].as_object().into_iter().flatten().all(|(name, value)| label(name) == Some(value));
    equal
        && items(&selector["matchExpressions"]).iter().all(|expression| {
            let label = label(expression["key"].as_str().unwrap_or_default());
            let listed = label.is_some_and(|label| items(&expression["values"]).contains(label));
            match expression["operator"].as_str() {
                Some("Exists") => label.is_some(),
                Some("DoesNotExist") => label.is_none(),
                Some("In") => listed,
                _ => !listed,
            }
        })
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// What an expression asks the authorizer, one step after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Question {
    may: Vec<String>,
    steps: BTreeMap<&'static str, String>,
}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.authorization.Question"
    }
}

fn question(value: &Cel) -> Result<Question, ExecutionError> {
    let Cel::Opaque(value) = value else { return Err(ExecutionError::function_error("authorizer", "no authorizer")) };
    value.downcast_ref().cloned().ok_or_else(|| ExecutionError::function_error("authorizer", "no authorizer"))
}

fn env() -> Result<Env> {
    let env = Env::stdlib();
    ensure!(env.compile("object.?spec.orValue({})").is_ok(), "optional values are not known");
    Ok(env)
}

/// Adds the functions that Kubernetes has and the policies use.
fn functions(context: &mut Context) -> Result<()> {
    for name in ["group", "resource", "subresource", "namespace", "name", "check"] {
        let step = move |This(this): This<Cel>, value: Arc<String>| -> Result<Cel, ExecutionError> {
            let mut question = question(&this)?;
            question.steps.insert(name, value.to_string());
            Ok(Cel::Opaque(Arc::new(question)))
        };
        context.add_function(name, step).map_err(|error| anyhow::anyhow!("{name}: {error:?}"))?;
    }
    let allowed = |This(this): This<Cel>| -> Result<bool, ExecutionError> {
        let question = question(&this)?;
        let step = |name: &str| question.steps.get(name).map_or("", String::as_str);
        Ok(question.may.contains(&[step("check"), step("resource"), step("name")].join(" ")))
    };
    let join = |This(this): This<Cel>, between: Arc<String>| -> Result<Arc<String>, ExecutionError> {
        let no_text = || ExecutionError::function_error("join", "no list of texts");
        let Cel::List(list) = this else { return Err(no_text()) };
        let text = |one: &Cel| if let Cel::String(text) = one { Ok(text.to_string()) } else { Err(no_text()) };
        let texts = list.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(texts.join(&between)))
    };
    context.add_function("join", join).map_err(|error| anyhow::anyhow!("join: {error:?}"))?;
    let split = |This(text): This<Arc<String>>, between: Arc<String>, most: i64| -> Result<Cel, ExecutionError> {
        let most = usize::try_from(most).map_err(|_| ExecutionError::function_error("split", "no number"))?;
        let words = text.splitn(most, between.as_str()).map(|word| Cel::String(Arc::new(word.to_owned())));
        Ok(Cel::List(Arc::new(words.collect())))
    };
    context.add_function("split", split).map_err(|error| anyhow::anyhow!("split: {error:?}"))?;
    context.add_function("allowed", allowed).map_err(|error| anyhow::anyhow!("allowed: {error:?}"))?;
    Ok(())
}
