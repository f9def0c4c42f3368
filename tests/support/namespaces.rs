//! A network and mounts of one's own, by unshare(1).

use std::process::Command;

/// unshare(1) with what this machine allows: plain for root, else within a user namespace. Root goes
/// without where it can, since there its processes have no limit on their number either.
/// Where neither is allowed, what would have to be.
pub fn unshare() -> Result<Command, String> {
    let mut refused = String::new();
    for flags in ["-nm", "-Urnm"] {
        let words = "ip link set lo up && mount --bind /dev/null /etc/resolv.conf";
        match Command::new("unshare").args([flags, "sh", "-c", words]).output() {
            Ok(output) if output.status.success() => {
                let mut unshare = Command::new("unshare");
                unshare.arg(flags);
                return Ok(unshare);
            }
            Ok(output) => refused = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => return Err(format!("unshare: {error}: install util-linux")),
        }
    }
    Err(format!(
        "no network and mounts of one's own are to be had here ({refused}): install iproute2, and be \
         root or allow user namespaces; a container needs --cap-add=SYS_ADMIN --cap-add=NET_ADMIN \
         --security-opt apparmor=unconfined"
    ))
}
