#!/bin/sh
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
#
# Makes an ext4 file system out of a root tree. Runs as root, or as the root of a user namespace.
#   $1      UUID of the file system
#   $2      its size in MiB
#   stdin   the tree, as tar
#   fd 3    regular file that becomes the image (reached by descriptor: inside a user namespace its path may be out of reach)
#   stdout  the boot loader of the tree
set -eu
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
tar --extract --numeric-owner --xattrs --xattrs-include='*' --directory "$tree"
mkfs.ext4 -q -F -L root -U "$1" -E root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1 -d "$tree" /dev/fd/3 "$2"M >&2
cat "$tree/boot/grub/lnxcore.img"
