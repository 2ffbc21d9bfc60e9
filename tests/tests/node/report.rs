//! The measurements of the run, as tables at its end.

use std::time::Duration;

use parking_lot::Mutex;

/// Tables, in the order in which they came.
#[derive(Default)]
pub(crate) struct Report(Mutex<Vec<Table>>);

struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Report {
    /// Adds a row to a table, which is made by its first row.
    pub(crate) fn row(&self, title: &str, cells: &[String]) {
        let mut tables = self.0.lock();
        match tables.iter_mut().find(|table| table.title == title) {
            Some(table) => table.rows.push(cells.to_vec()),
            None => tables.push(Table { title: title.to_owned(), rows: vec![cells.to_vec()] }),
        }
    }

    /// Prints all tables, with columns as wide as they must be.
    #[allow(clippy::print_stdout)]
    pub(crate) fn print(&self) {
        for table in self.0.lock().iter() {
            println!("\n{}", table.title);
            let width = |column: usize| {
                table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
            };
            for row in &table.rows {
                let cells = row.iter().enumerate().map(|(column, cell)| {
                    let width = width(column).unwrap_or_default();
                    if column == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") }
                });
                println!("{}", cells.collect::<String>().trim_end());
            }
        }
    }
}

/// Returns seconds, with as many digits as matter.
pub(crate) fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}
