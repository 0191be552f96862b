#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# repository.sh apt|dnf: a mirror in /srv/mirror as NVIDIA's is, its packages in two versions with the dependencies of the real
# ones, its index signed by a key made here. /root/right.asc is that key, /root/wrong.asc another one.
set -eu
manager=$1
work=$(mktemp -d)
export GNUPGHOME="$work/gnupg"
mkdir -m 700 "$GNUPGHOME"

for name in right wrong; do
    gpg --batch --quiet --pinentry-mode loopback --passphrase "" --quick-generate-key "$name@example.com" rsa2048 sign never
    gpg --armor --export "$name@example.com" > "/root/$name.asc"
done

sign() {
    gpg --batch --yes --quiet --local-user right@example.com --digest-algo SHA256 "$@"
}

# What a package needs of the others, as PACKAGE:RELATION words.
needs_of() {
    case $1 in
    nvidia-container-toolkit) echo "nvidia-container-toolkit-base:= libnvidia-container-tools:>= libnvidia-container1:>=" ;;
    libnvidia-container-tools) echo "libnvidia-container1:>=" ;;
    esac
}

packages="nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
versions="1.17.8-1 1.18.1-1"

make_apt() {
    tree="$work/$1-$2"
    mkdir -p "$tree/DEBIAN" "$tree/usr/lib/$1"
    echo "$2" > "$tree/usr/lib/$1/version"
    needed=""
    for need in $(needs_of "$1"); do
        needed="${needed:+$needed, }${need%%:*} (${need#*:} $2)"
    done
    {
        printf 'Package: %s\nVersion: %s\nArchitecture: %s\n' "$1" "$2" "$(dpkg --print-architecture)"
        printf 'Maintainer: nobody <nobody@example.com>\nDescription: %s\n' "$1"
        [ -z "$needed" ] || printf 'Depends: %s\n' "$needed"
    } > "$tree/DEBIAN/control"
    file="./$1_$2_$(dpkg --print-architecture).deb"
    dpkg-deb --build -Znone "$tree" "$file" > "$work/log"
    {
        dpkg-deb --field "$file"
        printf 'Filename: %s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -c-64)"
    } >> Packages
}

make_dnf() {
    {
        printf 'Name: %s\nVersion: %s\nRelease: %s\nSummary: nothing\nLicense: none\n' "$1" "${2%-*}" "${2#*-}"
        for need in $(needs_of "$1"); do
            echo "Requires: ${need%%:*} ${need#*:} $2"
        done
        printf '%%description\nNothing.\n%%install\nmkdir -p %%{buildroot}/usr/lib/%s\n' "$1"
        printf 'echo %s > %%{buildroot}/usr/lib/%s/version\n%%files\n/usr/lib/%s/version\n' "$2" "$1" "$1"
    } > "$work/$1.spec"
    rpmbuild -bb --quiet --define "_topdir $work/rpmbuild" --define "_rpmdir $PWD" \
        --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" "$work/$1.spec" > "$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
}

case $manager in
apt) folder=/srv/mirror/deb/$(dpkg --print-architecture) ;;
dnf) folder=/srv/mirror/rpm/$(uname -m) ;;
esac
mkdir -p "$folder"
cd "$folder"
for version in $versions; do
    for package in $packages; do
        "make_$manager" "$package" "$version"
    done
done
case $manager in
apt)
    printf 'Date: %s\nSHA256:\n %s %s Packages\n' "$(date -Ru)" "$(sha256sum Packages | cut -c-64)" "$(stat -c %s Packages)" > Release
    sign --clearsign --output InRelease Release
    ;;
dnf)
    createrepo_c --quiet .
    sign --armor --detach-sign --output repodata/repomd.xml.asc repodata/repomd.xml
    ;;
esac

# What comes with the distribution: a release, for here no package is one of rpm, and there all are; and the plugin for versions.
if [ "$manager" = dnf ]; then
    mkdir -p /srv/distribution
    cd /srv/distribution
    make_dnf system-release 9-1
    make_dnf python3-dnf-plugin-versionlock 4.3.0-1
    rpm --install --nodeps "system-release-9-1.$(uname -m).rpm"
    createrepo_c --quiet .
    printf '[distribution]\nname=distribution\nbaseurl=file:///srv/distribution\ngpgcheck=0\n' > /etc/yum.repos.d/distribution.repo
fi
gpgconf --kill all
rm -rf "$work"
