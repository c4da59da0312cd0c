use clap::{CommandFactory, Parser, error::ErrorKind};

use super::Cli;
use crate::config::{Config, Overrides};

fn parse_error(args: &[&str]) -> clap::Error {
    match Cli::try_parse_from(["tollgate"].iter().chain(args)) {
        Ok(_) => panic!("{args:?} was taken"),
        Err(error) => error,
    }
}

#[test]
fn the_commands_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_and_flag_says_what_it_is_for() {
    for command in Cli::command().get_subcommands() {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
    }
}

#[test]
fn no_help_shows_a_store_that_may_hold_a_password() {
    for command in Cli::command().get_subcommands() {
        for arg in command.get_arguments().filter(|arg| arg.get_id() == "store") {
            assert!(arg.is_hide_env_values_set(), "{}", command.get_name());
        }
    }
}

#[test]
fn a_question_names_one_policy() {
    assert_eq!(parse_error(&["check", "user:1"]).kind(), ErrorKind::MissingRequiredArgument);
    let both = ["check", "--policy", "api", "--limit", "token-bucket:1/s", "user:1"];
    assert_eq!(parse_error(&both).kind(), ErrorKind::ArgumentConflict);
    let four = ["tollgate", "check", "--limit=token-bucket:1/s", "--limit=sliding-window:9/h", "user:1"];
    assert!(Cli::try_parse_from(four).is_ok());
}

#[test]
fn wrong_values_are_told_with_what_to_write() {
    let error = parse_error(&["check", "--limit", "leaky:1/s", "user:1"]).to_string();
    assert!(error.contains("`leaky` is not an algorithm known here"), "{error}");
    let error = parse_error(&["check", "--limit", "token-bucket:9007199254740991/1s", "user:1"]).to_string();
    assert!(error.contains("cannot be enforced exactly"), "{error}");
    let error = parse_error(&["refund", "--policy", "api", "--cost", "0", "user:1"]).to_string();
    assert!(error.contains("0 is not in 1..=9007199254740991"), "{error}");
}

#[test]
fn the_ring_takes_keys_or_a_number_of_made_up_ones() {
    assert_eq!(parse_error(&["ring"]).kind(), ErrorKind::MissingRequiredArgument);
    assert_eq!(parse_error(&["ring", "--spread", "9", "user:1"]).kind(), ErrorKind::ArgumentConflict);
    assert!(Cli::try_parse_from(["tollgate", "ring", "--spread", "9"]).is_ok());
}

#[test]
fn help_names_the_defaults_of_the_configuration() {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let help = serve.render_long_help().to_string();
    let config = Config::load(None, Overrides::default()).unwrap();
    let admin = config.admin.unwrap();
    for default in [config.listen.to_string(), admin.to_string(), "info".into(), "human".into()] {
        assert!(help.contains(&format!("[default: {default}]")), "{default}: {help}");
    }
}
