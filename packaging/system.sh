# shellcheck shell=bash
# Sourced by the scripts that test on a Debian of their own, in a folder.

# Debian's mirror that this machine uses, if it uses one.
mirror() {
    # shellcheck disable=SC2016 # apt's own words
    apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk '$1 == "Debian/Debian" && $2 ~ /^https?:/ && !shown++ { print $2 }' || true
}

bootstrap() { # SUITE FOLDER PACKAGE,…: as small as it can be, and these packages
    local suite=$1 folder=$2 packages=$3 proxy='' mirror
    mirror=$(mirror)
    command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; return 1; }
    eval "$(apt-config shell proxy Acquire::http::Proxy 2>/dev/null || true)"
    rm -rf "$folder"
    mkdir -p "$folder"
    env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase --include="$packages" \
        "$suite" "$folder" ${mirror:+"$mirror"} >"$folder.log" 2>&1 || { tail "$folder.log" >&2; return 1; }
}

# Called in a mount namespace, so that it is undone when the last process in there ends, in whatever way.
bind() { # FOLDER THERE: shows a folder of this machine in the other system
    mkdir -p "$2"
    mount --rbind "$1" "$2"
}
