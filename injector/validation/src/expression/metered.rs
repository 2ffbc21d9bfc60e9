//! Rewrites an expression so that it counts what it does, and refuses what is not known.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, MapEntryExpr, operators,
};
use cel::common::types::CelInt;

use super::functions::{DEEP, MATCHES, MEMBER, MEMBERS, NAMES, RANGE};

/// Names that expressions may use beside the variables of their loops: the content, and types.
const VARIABLES: [&str; 2] = ["data", "parsed"];
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
/// Operators that look at no more than a few bytes of their operands, or pass one on.
const CHEAP: [&str; 10] = [
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
/// Operators that look at all of their operands, or copy them.
const COSTLY: [&str; 8] = [
    operators::ADD,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
];

/// An expression that counts.
pub(super) struct Metered {
    pub(super) tree: IdedExpr,
    /// Nodes of it as it was.
    pub(super) nodes: u64,
    pub(super) uses_parsed: bool,
}

/// Rewrites it, or says what is not allowed.
pub(super) fn metered(tree: IdedExpr) -> Result<Metered, String> {
    let mut rewriter = Rewriter { nodes: 0, uses_parsed: false, bound: Vec::new() };
    let tree = rewriter.rewrite(tree)?;
    Ok(Metered { tree, nodes: rewriter.nodes, uses_parsed: rewriter.uses_parsed })
}

struct Rewriter {
    nodes: u64,
    uses_parsed: bool,
    /// Variables of the loops around.
    bound: Vec<String>,
}

impl Rewriter {
    fn rewrite(&mut self, node: IdedExpr) -> Result<IdedExpr, String> {
        self.nodes += 1;
        let IdedExpr { id, expr } = node;
        let expr = match expr {
            Expr::Literal(literal) => Expr::Literal(literal),
            Expr::Ident(name) => {
                self.allow(&name)?;
                Expr::Ident(name)
            }
            Expr::Call(call) => Expr::Call(self.call(call)?),
            Expr::List(mut list) => {
                // A list has copies of its elements.
                list.elements = self.all(list.elements)?.into_iter().map(|it| counted(DEEP, it)).collect();
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
            Expr::Struct(of) => return Err(format!("there is no type {}", super::clip(&of.type_name, 64))),
            Expr::Unspecified => return Err("it is empty".to_owned()),
        };
        Ok(IdedExpr { id, expr })
    }

    fn all(&mut self, nodes: Vec<IdedExpr>) -> Result<Vec<IdedExpr>, String> {
        nodes.into_iter().map(|node| self.rewrite(node)).collect()
    }

    fn allow(&mut self, name: &str) -> Result<(), String> {
        self.uses_parsed |= name == "parsed";
        // A name with @ can't be written: macros make it.
        let is_bound = name.starts_with('@') || self.bound.iter().any(|bound| bound == name);
        if is_bound || VARIABLES.contains(&name) || TYPES.contains(&name) {
            return Ok(());
        }
        Err(format!("there is no variable {}; use data or parsed", super::clip(name, 64)))
    }

    fn call(&mut self, call: CallExpr) -> Result<CallExpr, String> {
        let CallExpr { mut func_name, target, args } = call;
        let name = func_name.as_str();
        let (cheap, costly) = (CHEAP.contains(&name), COSTLY.contains(&name));
        let known = match &target {
            Some(_) => MEMBERS.contains(&name),
            None => cheap || costly || name == operators::IN || NAMES.contains(&name),
        };
        if !known {
            return Err(format!("there is no function {}; use {}", super::clip(name, 64), super::functions::listed()));
        }
        let count = if name == operators::IN || name == "size" { MEMBER } else { DEEP };
        if name == "matches" {
            MATCHES.clone_into(&mut func_name);
        }
        let count = |node| if cheap { node } else { counted(count, node) };
        let mut args: Vec<IdedExpr> = self.all(args)?.into_iter().map(count).collect();
        let target = target.map(|target| self.rewrite(*target).map(count)).transpose()?;
        // Our own function is no member.
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
        let (key, value) = (counted(DEEP, self.rewrite(key)?), counted(DEEP, self.rewrite(value)?));
        Ok(IdedEntryExpr { id, expr: EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) })
    }

    fn comprehension(&mut self, loops: ComprehensionExpr) -> Result<ComprehensionExpr, String> {
        let ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result } =
            loops;
        let range = self.rewrite(iter_range)?;
        let (before, outer) = (self.nodes, self.bound.len());
        self.bound.push(iter_var.clone());
        self.bound.extend(iter_var2.clone());
        let (accu_init, loop_cond) = (self.rewrite(accu_init)?, self.rewrite(loop_cond)?);
        let (loop_step, result) = (self.rewrite(loop_step)?, self.rewrite(result)?);
        self.bound.truncate(outer);
        // What one turn costs beside what the functions in it count.
        let turn = i64::try_from(self.nodes - before).unwrap_or(i64::MAX);
        let turn = IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Int(CelInt::from(turn))) };
        let iter_range = called(RANGE, vec![range, turn]);
        Ok(ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result })
    }
}

/// Returns the node, with a call that counts its size. What a loop collects stays as it is: the library knows the loop by that.
fn counted(function: &str, node: IdedExpr) -> IdedExpr {
    match &node.expr {
        Expr::Literal(_) | Expr::List(_) => node,
        Expr::Ident(name) if name.starts_with('@') => node,
        _ => called(function, vec![node]),
    }
}

fn called(function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let call = CallExpr { func_name: function.to_owned(), target: None, args };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}
