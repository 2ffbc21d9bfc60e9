//! Tables as kubectl aligns them. A cell is one line, whatever is in it.

use crate::output::visible;

/// Returns the rows under their headers: three spaces between columns, none after the last.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let visible_row = |row: &Vec<String>| row.iter().map(|cell| visible::line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(visible_row).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(headers.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let headers: Vec<String> = headers.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&headers).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("   ").trim_end();
        text.push('\n');
    }
    text
}

/// Returns the text of a cell that may be empty.
pub(crate) fn or_none(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["long-name".to_owned(), String::new()]];
        assert_eq!(table(&["NAME", "X"], &rows), "NAME        X\na           b\nlong-name\n");
    }

    #[test]
    fn no_cell_makes_a_row_of_its_own() {
        let rows = [vec!["a\nweb   True".to_owned(), "\u{1b}[8m".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
        let expected = "NAME            X\na\\nweb   True   \\u{1b}[8m\nb               c\n";
        assert_eq!(table(&["NAME", "X"], &rows), expected);
    }
}
