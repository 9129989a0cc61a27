//! Identity and settings as rows of `meta`.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use myelin_shape::{ProviderKind, ProviderLeaseId};
use smol_str::SmolStr;

use crate::{
    Identity, Secret, Setting, Settings, StoreError,
    checksum::{from_hex, to_hex},
    sqlite::{
        connection::{Place, from_nanos, to_nanos},
        rows::{Row, Table},
    },
};

const PROVIDER: &str = "provider.";

const UNASKED: &str = "unasked";

/// A taken lease as it is written: when is in milliseconds since 1970.
type Taken = (ProviderKind, ProviderLeaseId, u64);

/// Returns the rows of an identity.
pub(crate) fn identity_rows(identity: &Identity, place: &Place) -> Result<Vec<Row>, StoreError> {
    let Identity { cluster, run, begun_at, secret } = identity;
    let rows = [
        ("begun_at", to_nanos(*begun_at, place)?.to_string()),
        ("cluster", cluster.to_string()),
        ("run", run.to_string()),
        ("secret", to_hex(&secret.0)),
    ];
    Ok(rows.map(|(id, body)| Row::new(Table::Meta, id.into(), body)).into())
}

/// Returns the row of a setting.
pub(crate) fn setting_row(setting: Setting) -> Row {
    let (id, body) = match setting {
        Setting::Address(address) => ("address".into(), address.to_string()),
        Setting::Provider(kind, identity) => (SmolStr::from(format!("{PROVIDER}{kind}")), identity),
        Setting::Unasked(unasked) => {
            let taken = unasked.into_iter().map(|((kind, lease), at)| (kind, lease, to_millis(at)));
            let taken: Vec<Taken> = taken.collect();
            (UNASKED.into(), serde_json::to_string(&taken).expect("numbers and strings are JSON"))
        }
    };
    Row::new(Table::Meta, id, body)
}

/// Reads the rows. What is not known is kept by the table and ignored here.
pub(crate) fn read(
    rows: &BTreeMap<SmolStr, String>,
    place: &Place,
) -> Result<(Identity, Settings), StoreError> {
    let damaged = |id: &str| place.damaged(format!("meta {id:?} is missing or unreadable"));
    let text = |id: &'static str| rows.get(id).ok_or_else(|| damaged(id));
    let begun_at: i64 = text("begun_at")?.parse().map_err(|_| damaged("begun_at"))?;
    let run: u64 = text("run")?.parse().map_err(|_| damaged("run"))?;
    let identity = Identity {
        cluster: text("cluster")?.parse().map_err(|_| damaged("cluster"))?,
        run: myelin_shape::RunId(run),
        begun_at: from_nanos(begun_at, place)?,
        secret: Secret(from_hex(text("secret")?).ok_or_else(|| damaged("secret"))?),
    };
    let address = rows.get("address").map(|text| text.parse()).transpose();
    let providers = rows
        .iter()
        .filter_map(|(id, body)| id.strip_prefix(PROVIDER).map(|kind| (kind.into(), body.clone())));
    let taken = rows.get(UNASKED).map(|body| serde_json::from_str::<Vec<Taken>>(body)).transpose();
    let taken = taken.map_err(|_| damaged(UNASKED))?.unwrap_or_default();
    let settings = Settings {
        address: address.map_err(|_| damaged("address"))?,
        providers: providers.collect(),
        unasked: taken
            .into_iter()
            .map(|(kind, lease, at)| ((kind, lease), UNIX_EPOCH + Duration::from_millis(at)))
            .collect(),
    };
    Ok((identity, settings))
}

fn to_millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
