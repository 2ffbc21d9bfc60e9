//! Rewrites an expression so that it counts its work. Refuses functions of unknown cost.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, operators,
};
use cel::common::types::CelInt;

use super::functions::{COUNT_DEEP, COUNT_MEMBER, COUNT_RANGE, FUNCTIONS, MATCHES, MEMBER_FUNCTIONS};

/// The names of the content. Besides them, expressions may use the variables of their loops.
const VARIABLES: [&str; 2] = ["data", "parsed"];
/// The names of types, which expressions may use.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// The operators that read only a few bytes of their operands, or return an operand.
const CHEAP_OPERATORS: [&str; 10] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::NOT_STRICTLY_FALSE,
    operators::INDEX,
    operators::NEGATE,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
];
/// The operators that read all of their operands, or copy them.
const COSTLY_OPERATORS: [&str; 8] = [
    operators::ADD,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
];

/// An expression that counts its work.
pub(super) struct MeteredExpression {
    pub(super) tree: IdedExpr,
    /// The number of nodes before the rewriting.
    pub(super) nodes: u64,
    pub(super) uses_parsed: bool,
}

/// Rewrites an expression, or returns the part of it that is not allowed.
pub(super) fn meter_expression(tree: IdedExpr) -> Result<MeteredExpression, String> {
    let mut rewriter = Rewriter { nodes: 0, uses_parsed: false, loop_variables: Vec::new() };
    let tree = rewriter.rewrite(tree)?;
    Ok(MeteredExpression { tree, nodes: rewriter.nodes, uses_parsed: rewriter.uses_parsed })
}

struct Rewriter {
    nodes: u64,
    uses_parsed: bool,
    /// The variables of the enclosing loops.
    loop_variables: Vec<String>,
}

impl Rewriter {
    fn rewrite(&mut self, node: IdedExpr) -> Result<IdedExpr, String> {
        self.nodes += 1;
        let IdedExpr { id, expr } = node;
        let expr = match expr {
            Expr::Literal(literal) => Expr::Literal(literal),
            Expr::Ident(name) => {
                self.check_name(&name)?;
                Expr::Ident(name)
            }
            Expr::Call(call) => Expr::Call(self.call(call)?),
            Expr::List(mut list) => {
                // A list holds copies of its elements.
                list.elements =
                    self.rewrite_all(list.elements)?.into_iter().map(|node| count_node(COUNT_DEEP, node)).collect();
                Expr::List(list)
            }
            Expr::Map(mut map) => {
                let entries = map.entries.into_iter().map(|entry| self.entry(entry));
                map.entries = entries.collect::<Result<_, _>>()?;
                Expr::Map(map)
            }
            Expr::Select(mut select) => {
                *select.operand = self.rewrite(*select.operand)?;
                Expr::Select(select)
            }
            Expr::Comprehension(comprehension) => Expr::Comprehension(Box::new(self.comprehension(*comprehension)?)),
            Expr::Struct(value) => return Err(format!("there is no type {}", super::clip(&value.type_name, 64))),
            Expr::Unspecified => return Err("it is empty".to_owned()),
        };
        Ok(IdedExpr { id, expr })
    }

    fn rewrite_all(&mut self, nodes: Vec<IdedExpr>) -> Result<Vec<IdedExpr>, String> {
        nodes.into_iter().map(|node| self.rewrite(node)).collect()
    }

    fn check_name(&mut self, name: &str) -> Result<(), String> {
        self.uses_parsed |= name == "parsed";
        // A name with @ can't be written. Macros make such names.
        let is_bound = name.starts_with('@') || self.loop_variables.iter().any(|variable| variable == name);
        if is_bound || VARIABLES.contains(&name) || TYPES.contains(&name) {
            return Ok(());
        }
        Err(format!("there is no variable {}; use data or parsed", super::clip(name, 64)))
    }

    fn call(&mut self, call: CallExpr) -> Result<CallExpr, String> {
        let CallExpr { mut func_name, target, args } = call;
        let name = func_name.as_str();
        let is_cheap = CHEAP_OPERATORS.contains(&name);
        let is_known = match &target {
            Some(_) => MEMBER_FUNCTIONS.contains(&name),
            None => is_cheap || COSTLY_OPERATORS.contains(&name) || name == operators::IN || FUNCTIONS.contains(&name),
        };
        if !is_known {
            return Err(format!(
                "there is no function {}; use {}",
                super::clip(name, 64),
                super::functions::list_names()
            ));
        }
        let counter = if name == operators::IN || name == "size" { COUNT_MEMBER } else { COUNT_DEEP };
        if name == "matches" {
            MATCHES.clone_into(&mut func_name);
        }
        let count = |node| if is_cheap { node } else { count_node(counter, node) };
        let mut args: Vec<IdedExpr> = self.rewrite_all(args)?.into_iter().map(count).collect();
        let target = target.map(|target| self.rewrite(*target).map(count)).transpose()?;
        // Our own function is not a member.
        if func_name == MATCHES
            && let Some(target) = target
        {
            args.insert(0, target);
            return Ok(CallExpr { func_name, target: None, args });
        }
        Ok(CallExpr { func_name, target: target.map(Box::new), args })
    }

    fn entry(&mut self, entry: IdedEntryExpr) -> Result<IdedEntryExpr, String> {
        let IdedEntryExpr { id, expr } = entry;
        let EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) = expr else {
            return Err("it has a field outside of a type".to_owned());
        };
        let (key, value) = (count_node(COUNT_DEEP, self.rewrite(key)?), count_node(COUNT_DEEP, self.rewrite(value)?));
        Ok(IdedEntryExpr { id, expr: EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) })
    }

    fn comprehension(&mut self, loops: ComprehensionExpr) -> Result<ComprehensionExpr, String> {
        let ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result } =
            loops;
        let range = self.rewrite(iter_range)?;
        let (nodes_before, outer_variables) = (self.nodes, self.loop_variables.len());
        self.loop_variables.push(iter_var.clone());
        self.loop_variables.extend(iter_var2.clone());
        let (accu_init, loop_cond) = (self.rewrite(accu_init)?, self.rewrite(loop_cond)?);
        let (loop_step, result) = (self.rewrite(loop_step)?, self.rewrite(result)?);
        self.loop_variables.truncate(outer_variables);
        // The cost of one iteration without the cost that its functions count.
        let turn = i64::try_from(self.nodes - nodes_before).unwrap_or(i64::MAX);
        let turn = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(CelInt::from(turn))) };
        let iter_range = call_function(COUNT_RANGE, vec![range, turn]);
        Ok(ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result })
    }
}

/// Returns the node, with a call that counts its size. The list of a loop's results stays as it is, because the library
/// recognizes the loop by this list.
fn count_node(function: &str, node: IdedExpr) -> IdedExpr {
    match &node.expr {
        Expr::Literal(_) | Expr::List(_) => node,
        Expr::Ident(name) if name.starts_with('@') => node,
        _ => call_function(function, vec![node]),
    }
}

fn call_function(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr { func_name: function.to_owned(), target: None, args };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}
