//! CIDR lists as operators keep them: inline entries and text files, one prefix a line.
//!
//! A file may have comments with `#` or `;` (whole lines or behind a prefix), blank lines, Windows line ends and a
//! byte order mark. Every bad line is a problem with its file and line: a list is never taken in part,
//! because a deny list must not fail open. How strict one prefix is lies with [`Cidr`].

use crate::config::{Cidr, CidrEntry, EmptyList, Problem, Problems, Source, file};
use ipnet::IpNet;
use std::path::Path;

/// Largest list file, in MiB: about two million prefixes.
const MAX_FILE_MEBIBYTES: u64 = 64;
/// Longest prefix with its comment cut off; the longest valid one has 49 bytes.
const MAX_PREFIX_BYTES: usize = 64;
/// Bad lines reported one by one; those after it are only counted.
const MAX_BAD_LINES: usize = 100;

/// All prefixes of a list, files read. What is wrong goes to `problems`: inline entries at
/// `path[index]`, lines of a file with that file and line.
pub fn load(entries: &[CidrEntry], source: &Source, path: &str, problems: &mut Problems) -> Vec<IpNet> {
    load_checked(entries, source, path, problems, |_| Ok(()))
}

/// [`load`] with one more condition on each prefix; its error is the reason reported.
pub(super) fn load_checked(
    entries: &[CidrEntry],
    source: &Source,
    path: &str,
    problems: &mut Problems,
    check: impl Fn(IpNet) -> Result<(), String>,
) -> Vec<IpNet> {
    let mut prefixes = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match entry {
            CidrEntry::Inline(Cidr(prefix)) => match check(*prefix) {
                Ok(()) => prefixes.push(*prefix),
                Err(reason) => problems.push(source.problem(path, reason)),
            },
            CidrEntry::File { file, empty } => {
                let file = source.resolve(file);
                match file::contents(&file, MAX_FILE_MEBIBYTES) {
                    Ok(text) => {
                        let before = (prefixes.len(), problems.0.len());
                        parse(&text, &file, &path, &mut prefixes, problems, &check);
                        if *empty == EmptyList::Refuse && before == (prefixes.len(), problems.0.len()) {
                            let reason = format!("the list {} is empty", file.display());
                            let mut problem = source.problem(path, reason);
                            problem.hint =
                                Some("`empty: allow` beside `file` where that is meant".to_owned());
                            problems.push(problem);
                        }
                    }
                    Err(reason) => {
                        let reason = format!("cannot read the list {}: {reason}", file.display());
                        problems.push(source.problem(path, reason));
                    }
                }
            }
        }
    }
    prefixes
}

fn parse(
    text: &[u8],
    file: &Path,
    path: &str,
    prefixes: &mut Vec<IpNet>,
    problems: &mut Problems,
    check: &impl Fn(IpNet) -> Result<(), String>,
) {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let problem = |line: Option<usize>, reason: String| Problem {
        file: file.to_owned(),
        line,
        path: path.to_owned(),
        reason,
        hint: None,
    };
    let mut bad = 0_usize;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let parsed = parse_line(line).and_then(|prefix| match prefix {
            Some(prefix) => check(prefix).map(|()| Some(prefix)),
            None => Ok(None),
        });
        match parsed {
            Ok(prefix) => prefixes.extend(prefix),
            Err(reason) => {
                bad += 1;
                if bad <= MAX_BAD_LINES {
                    problems.push(problem(Some(index + 1), reason));
                }
            }
        }
    }
    if bad > MAX_BAD_LINES {
        problems.push(problem(None, format!("{} more bad lines in this list", bad - MAX_BAD_LINES)));
    }
}

/// The prefix on a line; `None` when there is only a comment or nothing.
fn parse_line(line: &[u8]) -> Result<Option<IpNet>, String> {
    let written = line.split(|byte| matches!(byte, b'#' | b';')).next().unwrap_or(line).trim_ascii();
    if written.is_empty() {
        return Ok(None);
    }
    if written.len() > MAX_PREFIX_BYTES {
        return Err("the line is too long to be a prefix".into());
    }
    let text = std::str::from_utf8(written).map_err(|_| "the line is not UTF-8 text".to_owned())?;
    text.parse().map(|Cidr(prefix)| Some(prefix)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn load_text(text: &[u8]) -> (Vec<IpNet>, Problems) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        load_file(file.path())
    }

    fn load_file(file: &Path) -> (Vec<IpNet>, Problems) {
        let mut problems = Problems::default();
        let entries = [CidrEntry::File { file: file.to_owned(), empty: EmptyList::Refuse }];
        let prefixes = load(&entries, &Source::default(), "access.deny", &mut problems);
        (prefixes, problems)
    }

    fn texts(prefixes: &[IpNet]) -> Vec<String> {
        prefixes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn comments_blank_lines_windows_ends_and_byte_order_mark_are_fine() {
        let (prefixes, problems) = load_text(
            b"\xEF\xBB\xBF10.0.0.0/8\r\n# office\r\n\r\n \t192.168.0.0/16 # home\r\n#\n2001:db8::/32#x\nfd00::/8",
        );
        assert_eq!(problems, Problems::default());
        assert_eq!(texts(&prefixes), ["10.0.0.0/8", "192.168.0.0/16", "2001:db8::/32", "fd00::/8"]);
    }

    #[test]
    fn semicolons_begin_comments_as_in_lists_of_spamhaus() {
        let (prefixes, problems) = load_text(b"; 2026-12-01\n192.0.2.0/24 ; SBL1\n198.51.100.0/24;SBL2\n;\n");
        assert_eq!(problems, Problems::default());
        assert_eq!(texts(&prefixes), ["192.0.2.0/24", "198.51.100.0/24"]);
    }

    #[test]
    fn every_bad_line_is_reported_with_its_number() {
        let (_, problems) =
            load_text(b"10.0.0.0/33\n10.0.0.0/8\nnot-an-ip\n10.0.0/8\n\xFF\n1.0.0.0/8 2.0.0.0/8\n");
        let lines: Vec<_> = problems.0.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6].map(Some));
        assert!(problems.0.iter().all(|problem| problem.path == "access.deny[0]"));
    }

    #[test]
    fn problems_are_bounded_and_the_rest_is_counted() {
        let (_, problems) = load_text("x\n".repeat(1000).as_bytes());
        assert_eq!(problems.0.len(), MAX_BAD_LINES + 1);
        assert_eq!(problems.0[MAX_BAD_LINES].reason, "900 more bad lines in this list");
    }

    #[test]
    fn missing_file_folder_and_overlong_line_are_problems() {
        assert_eq!(load_file(Path::new("/nonexistent/list")).1.0.len(), 1);
        assert_eq!(load_file(&std::env::temp_dir()).1.0.len(), 1);
        assert_eq!(load_text(&[b'1'; 100_000]).1.0.len(), 1);
    }

    #[test]
    fn an_empty_file_is_a_mistake_unless_it_is_meant() {
        for text in [&b""[..], b"# nothing\n\n"] {
            let (prefixes, problems) = load_text(text);
            assert!(prefixes.is_empty() && problems.0.len() == 1, "{problems}");
            assert!(problems.0[0].reason.ends_with(" is empty"), "{problems}");
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text).unwrap();
            let entries = [CidrEntry::File { file: file.path().to_owned(), empty: EmptyList::Allow }];
            let mut problems = Problems::default();
            assert!(load(&entries, &Source::default(), "access.deny", &mut problems).is_empty());
            assert!(problems.is_empty(), "{problems}");
        }
    }

    #[test]
    fn inline_entries_keep_their_order() {
        let entries = ["10.0.0.0/8", "::1/128"].map(|text| CidrEntry::Inline(text.parse().unwrap()));
        let mut problems = Problems::default();
        let prefixes = load(&entries, &Source::default(), "access.allow", &mut problems);
        assert_eq!(texts(&prefixes), ["10.0.0.0/8", "::1/128"]);
    }
}
