//! Where the password comes from: the configuration, a file of its own, the environment, the command line.

use super::ServerSection;
use crate::cli::ServeArguments;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// The environment variable that holds the password.
const VARIABLE: &str = "ANABRANCH_PASSWORD";

impl ServerSection {
    /// Finds the password: the command line has precedence over the environment, which has it over the configuration.
    pub(super) fn find_password(&mut self, arguments: &ServeArguments) -> Result<()> {
        if self.password.is_some() && self.password_file.is_some() {
            bail!(
                "the configuration has both `server.password` and `server.password_file`; leave one of them out"
            );
        }
        if self.password.is_some() {
            let file = arguments.config.as_deref().unwrap_or(Path::new("the configuration"));
            self.password_origin = Some(file.display().to_string());
        }
        let said = std::env::var(VARIABLE).ok();
        if let Some(file) = &arguments.password_file {
            (self.password, self.password_file) = (None, Some(file.clone()));
        } else if let Some(password) = said {
            if password.is_empty() {
                bail!("{VARIABLE} is empty; unset it to ask clients for no password");
            }
            (self.password, self.password_file) = (Some(password), None);
            self.password_origin = Some(format!("the environment variable {VARIABLE}"));
        }
        if let Some(file) = &self.password_file {
            self.password = Some(read(file)?);
            self.password_origin = None;
        }
        Ok(())
    }
}

/// The password in a file: its first line.
fn read(file: &Path) -> Result<String> {
    let name = file.display();
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read the password file {name}"))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => bail!("the password file {name} has no password in its first line"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_precedence_and_its_first_line_is_the_password() {
        let path = std::env::temp_dir().join(format!("anabranch-password-{}", std::process::id()));
        let arguments = ServeArguments { password_file: Some(path.clone()), ..ServeArguments::default() };
        let mut section = ServerSection { password: Some("other".to_owned()), ..ServerSection::default() };
        assert!(section.find_password(&arguments).unwrap_err().to_string().contains("cannot read"));
        std::fs::write(&path, "secret word\nand more\n").unwrap();
        section.find_password(&arguments).unwrap();
        assert_eq!(
            (section.password.as_deref(), section.password_origin.as_deref()),
            (Some("secret word"), None)
        );
        std::fs::write(&path, "\n").unwrap();
        let mut section = ServerSection { password_file: Some(path.clone()), ..ServerSection::default() };
        let refused = section.find_password(&ServeArguments::default()).unwrap_err().to_string();
        assert!(refused.contains("no password"), "{refused}");
        std::fs::remove_file(&path).unwrap();
    }
}
