//! `tollgate ring`

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use clap::Args;
use serde::Serialize;

use super::{
    CliError, Outcome, block_on, keys,
    output::{Align, shown, write_json_line, write_table},
    settings::StoreArgs,
};
use crate::{
    config::{Config, Overrides, StoreConfig},
    placement::{Partition, Placement},
    store::redis::shards_of_partitions,
};

/// Print where keys are placed: partition, hash tag, slot, and with a Redis store the shard
///
/// A key's partition depends on the number of partitions and the placement secret, which all servers of a store
/// share; the partition's hash tag decides the Redis Cluster slot. A Redis Cluster is asked for the shard. The secret
/// is TOLLGATE_PLACEMENT_SECRET, or redis.placement_secret of --config: without that of the servers the placement is
/// another one.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  tollgate ring user:1 user:2
  tollgate ring --store redis-cluster://10.0.0.1:6379,10.0.0.2:6379 user:1
  tollgate ring --config tollgate.toml --spread 100000")]
pub(super) struct RingArgs {
    /// Keys, as UTF-8; `-` reads them from the standard input, one a line
    #[arg(value_name = "KEY", required_unless_present = "spread")]
    keys: Vec<String>,

    /// Print how N made-up keys spread over partitions and shards
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "keys",
        value_parser = clap::value_parser!(u32).range(1..=100_000_000)
    )]
    spread: Option<u32>,

    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON: an object a key, or one for the spread
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: RingArgs, out: &mut impl Write) -> Result<Outcome, CliError> {
    let RingArgs { keys, spread, store, json } = args;
    let config = store.source(Overrides::default())?.load()?;
    let keys = if spread.is_some() { Vec::new() } else { keys::read(keys)? };
    let placement = Arc::new(config.placement());
    let map = Map { shards: shards(&config, &placement)?, placement };
    match spread {
        Some(count) => map.spread(count).write(out, json)?,
        None => map.write_keys(out, &keys, json)?,
    }
    Ok(Outcome::Done)
}

/// The shard of each partition, where it has one; `None` where states are kept in memory.
type Shards = Option<Vec<Option<String>>>;

fn shards(config: &Config, placement: &Arc<Placement>) -> Result<Shards, CliError> {
    let StoreConfig::Redis(redis) = &config.store else { return Ok(None) };
    Ok(Some(block_on(shards_of_partitions(redis, placement))??))
}

/// The placement, and the shards as they are now.
struct Map {
    placement: Arc<Placement>,
    shards: Shards,
}

/// Where a key is.
#[derive(Serialize)]
struct Place<'a> {
    key: &'a str,
    partition: usize,
    tag: &'a str,
    slot: u16,
    shard: Option<&'a str>,
}

impl Map {
    fn shard(&self, partition: usize) -> Option<&str> {
        self.shards.as_ref()?.get(partition)?.as_deref()
    }

    fn place<'a>(&'a self, key: &'a str) -> Place<'a> {
        let partition = self.placement.partition_of(key.as_bytes());
        let Partition { tag, slot, .. } = &self.placement.partitions()[partition];
        Place { key, partition, tag, slot: *slot, shard: self.shard(partition) }
    }

    fn write_keys(&self, out: &mut impl Write, keys: &[String], json: bool) -> io::Result<()> {
        let mut places = keys.iter().map(|key| self.place(key));
        if json {
            return places.try_for_each(|place| write_json_line(out, &place));
        }
        let mut rows = vec![["KEY", "PARTITION", "TAG", "SLOT", "SHARD"].map(String::from)];
        rows.extend(places.map(|Place { key, partition, tag, slot, shard }| {
            let shard = shard.unwrap_or("-").to_owned();
            [shown(key), partition.to_string(), tag.to_owned(), slot.to_string(), shard]
        }));
        write_table(out, [Align::Left, Align::Right, Align::Right, Align::Right, Align::Left], &rows)
    }

    fn spread(&self, keys: u32) -> Spread {
        let mut by_partition = vec![0u64; self.placement.partitions().len()];
        for number in 0..keys {
            by_partition[self.placement.partition_of(format!("key:{number}").as_bytes())] += 1;
        }
        let by_shard = self.shards.as_ref().map(|shards| {
            let mut counts = BTreeMap::<_, u64>::new();
            for (shard, count) in shards.iter().zip(&by_partition) {
                *counts.entry(shard).or_default() += count;
            }
            counts.into_values().collect::<Vec<_>>()
        });
        Spread {
            keys,
            partitions: Counts::new(&by_partition),
            shards: by_shard.map(|counts| Counts::new(&counts)),
        }
    }
}

/// How keys spread.
#[derive(Debug, Serialize)]
struct Spread {
    keys: u32,
    partitions: Counts,
    shards: Option<Counts>,
}

/// How keys spread over places of one kind.
#[derive(Debug, Serialize)]
struct Counts {
    count: usize,
    mean: f64,
    max: u64,
    max_over_mean: f64,
}

impl Counts {
    /// `keys` has at least one place, and at least one key.
    fn new(keys: &[u64]) -> Self {
        let mean = keys.iter().sum::<u64>() as f64 / keys.len() as f64;
        let max = keys.iter().copied().max().unwrap_or(0);
        Self { count: keys.len(), mean, max, max_over_mean: max as f64 / mean }
    }

    fn row(&self, name: &str) -> [String; 5] {
        let Self { count, mean, max, max_over_mean } = self;
        let numbers =
            [count.to_string(), format!("{mean:.1}"), max.to_string(), format!("{max_over_mean:.2}")];
        let [count, mean, max, max_over_mean] = numbers;
        [name.to_owned(), count, mean, max, max_over_mean]
    }
}

impl Spread {
    fn write(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        if json {
            return write_json_line(out, self);
        }
        let mut rows = vec![["KEYS OVER", "COUNT", "MEAN", "MAX", "MAX/MEAN"].map(String::from)];
        rows.push(self.partitions.row("partitions"));
        rows.extend(self.shards.as_ref().map(|shards| shards.row("shards")));
        let [name, number] = [Align::Left, Align::Right];
        write_table(out, [name, number, number, number, number], &rows)
    }
}
