#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: filesystems
short_description: Mounts of NFS, parallel file systems, object stores, local disks and tmpfs, compared with the kernel
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges mounts to the declaration, and reads back from C(/proc/self/mountinfo) which options are really in effect.
    For NFS these are what the kernel agreed on with the server, such as C(rsize) and C(nconnect).
  - Nothing that holds data is ever formatted, wiped, or unmounted by force. O(state=absent) unmounts what this module
    mounted, and leaves what is on it as it is.
  - An array of RAID level 0 and a file system are made on named drives if these are empty (O(mounts[].made_of)). If the
    run is killed while it makes them, the next one finishes.
  - Each mount has a systemd unit for the next boot, such as C(/etc/systemd/system/data.mount) for C(/data).
    C(remote-fs.target) or C(local-fs.target) wants it and does not require it, so a node whose server or disk is gone
    boots all the same. Whatever is ordered after the target, such as slurmd, waits for the mount for up to 60 seconds.
  - C(/etc/fstab) is not changed. A line there for the same mount point is listed in RV(conflicts), and systemd uses the
    unit.
  - Each declared mount is mounted now, with a deadline of 60 seconds, before its unit is written. So no boot waits for
    an export that never worked.
  - Options of the mount alone (C(ro), C(noatime), C(nosuid), C(nodev), C(noexec) and their opposites), and C(size) and
    C(huge) of tmpfs, are changed by a remount. Every other option needs an unmount and a new mount. Until then the
    setting is pending, with the reason.
  - All mounts from a server with the same version of NFS share their connections. C(nconnect) of the first mount counts
    for all of them. If another value is declared, the message names the other mounts.
  - Of parallel file systems, cloud file systems and object stores only the client side is managed. The client has to be
    installed, else the mount is refused before anything changes. This module does not install it.
  - Options that only a mount helper reads, such as C(secretfile) of Ceph, C(num_cores) of WekaFS, C(tls) of EFS, and
    nearly all of object stores, are not in the kernel's table of mounts. They are compared with what this module or its
    unit made the mount with. If another program made it, they are listed in RV(unmanaged) until the next boot.
  - A process serves a mount of EFS or of an object store. It is started in a scope of systemd, without the environment
    of the session, so that it outlives the run and has the same environment as at boot. Name files with credentials and
    configuration by their full paths, such as C(config=/etc/rclone.conf), because there is no C(HOME).
  - File systems of IBM Storage Scale and 3FS are mounted by services of their own, as their clusters are configured.
    They are compared and never mounted, unmounted or changed here. While one is not mounted, its setting is pending,
    and RV(needs) has C(mount of /gpfs/gpfs0), with its path.
  - NFS with the client of VAST (C(vastnfs)) is V(nfs). Options that only this client has, such as C(remoteports),
    C(localports), C(spread_reads), C(spread_writes) and C(nconnect) above 16, are refused where it is not installed.
    After an update of the kernel, rebuild its package, or the mount fails at the next boot.
  - FSx for Lustre is V(lustre). FSx for OpenZFS and for NetApp ONTAP are V(nfs).
  - If the kernel or the server did not accept an option with which the mount was made, the option is listed in
    RV(unmanaged), with the value that is in effect instead. With O(strict=true) it is an error.
  - Existing mounts that are as declared are taken over without being touched. A mount point is refused if it is not
    empty, is a symbolic link or lies behind one, is inside a mount over the network, or if something else is mounted
    there.
  - A mount that is no longer declared is unmounted if it is not in use. Otherwise the run fails before it changes
    anything, and names the processes. A mount that existed before this module changed it stays mounted, with the flags,
    the read-ahead and the tunables that it had.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  mounts:
    description:
      - The mounts. Mounts that are neither declared here nor were made by this module are left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - The mount point. A folder that does not exist is created. No declared mount point may be inside another one.
        type: str
        required: true
      source:
        description:
          - What is mounted. For NFS the server and the path that it exports, such as V(nfs1:/export/data). For a disk
            V(UUID=...), or a path such as C(/dev/disk/by-id/...), C(/dev/md/NAME) or C(/dev/mapper/NAME). Names such
            as C(/dev/nvme0n1) are refused, because they change from boot to boot. Not for tmpfs.
          - For Lustre the servers of its MGS and the file system, such as V(mgs1@o2ib:mgs2@o2ib:/fsname), with a folder
            after it if only that is mounted.
          - For EFS its identifier and a path, such as V(fs-0123456789abcdef0:/path), or its name in DNS instead. The
            kernel shows a proxy on this machine. The file system behind it is read from C(/run/efs), where
            C(amazon-efs-utils) keeps it.
          - For Storage Scale the device, such as V(gpfs0). For 3FS V(hf3fs.CLUSTER), as the kernel shows it.
          - For object stores V(remote:bucket/path) with rclone, V(bucket:/path) with s3fs, V(s3://bucket/prefix/) with
            Mountpoint for Amazon S3, V(bucket) with Cloud Storage FUSE, and the address of the metadata engine, such as
            V(redis://redis1:6379/1), with JuiceFS. BlobFuse2 has it in its configuration, so V(blobfuse2) is the
            default.
          - Of s3fs, Mountpoint for Amazon S3 and JuiceFS the kernel does not show what is mounted. It is read from the
            command line of the process that serves the mount. If there is none, C(mount) is listed in RV(unmanaged).
          - For Ceph V(mon1,mon2:/path), V(user@fsid.fsname=/path), or V(user@.fsname=/path) without the C(fsid).
          - For WekaFS V(backend1,backend2/fsname). For BeeGFS V(beegfs_nodev), which is the default.
          - If servers are declared by name, the kernel shows addresses, and the two are not compared. The file system
            and the path are.
        type: str
        default: ""
      fstype:
        description:
          - The type of the file system. V(nfs) is every version of NFS; C(vers) in O(mounts[].options) chooses one.
          - V(ceph) is CephFS, mounted with the kernel's client and not with ceph-fuse.
          - V(efs) is Amazon EFS with C(amazon-efs-utils), which starts its proxy and its watchdog. Without them, EFS is
            V(nfs).
          - V(gpfs) is IBM Storage Scale and V(hf3fs) is 3FS.
          - V(blobfuse2), V(gcsfuse), V(juicefs), V(mountpoint-s3), V(rclone) and V(s3fs) are object stores, through
            FUSE.
        type: str
        choices:
          - beegfs
          - blobfuse2
          - ceph
          - efs
          - ext4
          - gcsfuse
          - gpfs
          - hf3fs
          - juicefs
          - lustre
          - mountpoint-s3
          - nfs
          - rclone
          - s3fs
          - tmpfs
          - wekafs
          - xfs
        required: true
      options:
        description:
          - The mount options, as in mount(8), nfs(5), mount.ceph(8) and mount.lustre(8), one in each element. Options
            that are not given are left to the kernel and the server. An option that may be there several times, such
            as C(net) of WekaFS, has an element for each value.
          - Options that are secrets themselves, such as C(secret) of Ceph or C(s3_secret_access_key) of rclone, are
            refused, and so is a password in O(mounts[].source). Name a file, such as with C(secretfile) of Ceph,
            C(passwd_file) of s3fs or C(config) of rclone.
          - Mounts of parallel and cloud file systems and of object stores always have C(_netdev), and those of
            V(mountpoint-s3) also C(nosuid) and C(nodev), without which it does not start.
          - For V(efs), V(iam) and V(accesspoint=fsap-...) need V(tls), and C(nconnect) is refused, because EFS does not
            support it. The port that the kernel shows is that of the proxy, also if it is 20049, as of RDMA.
          - For object stores, the options are those that the mount helper of the program takes, such as
            V(vfs_cache_mode=full) of rclone. For V(blobfuse2), V(--config-file=...) is required.
          - For V(gpfs) and V(hf3fs), options are refused, because their clusters set them.
          - NFS is always C(async), and C(noatime) has no effect on it, because the server keeps the times.
        type: list
        elements: str
        default: []
      made_of:
        description:
          - Make an array and its file system on these drives, if they are empty. Then O(mounts[].source) must not be
            set, and O(mounts[].fstype) must be V(xfs) or V(ext4).
          - A drive that is not empty is refused before anything changes, and the error says what is on it. A drive is
            not empty if it has a signature or a partition table, if a device or a process uses it, or if a sample of
            its content is not all zeros. Drives that are not named are never opened.
          - An existing array and file system that fit the declaration are taken over as they are. Those that do not fit
            are refused, and never made anew.
        type: dict
        suboptions:
          drives:
            description:
              - The drives by stable names, such as C(/dev/disk/by-id/nvme-MODEL_SERIAL). Names such as C(/dev/nvme0n1)
                are refused, because they change from boot to boot.
              - A name may be a shell glob, such as C(/dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*), for
                drives whose serial numbers change with every stop of the machine.
              - Several drives become an array of RAID level 0. A single drive gets the file system without an array.
            type: list
            elements: str
            required: true
          name:
            description:
              - The name of the array in C(/dev/md). If empty, it is the last part of O(mounts[].path).
            type: str
            default: ""
          chunk_kb:
            description:
              - The chunk size of the array in KiB, a power of 2. The geometry of the file system follows from it.
            type: int
            default: 512
          label:
            description:
              - The label of the new file system, up to 12 characters for V(xfs) and 16 for V(ext4).
            type: str
            default: ""
          ephemeral:
            description:
              - Whether the drives are empty after every stop of the machine, as the instance stores of clouds are. Then
                there is no mount unit. At boot, C(gpufleet-boot.service) makes the array and the file system if all
                drives are empty, and mounts it. The role P(gpufleet.node.node_tools#role) installs the service.
            type: bool
            default: false
      read_ahead_kb:
        description:
          - The read-ahead in KiB, a multiple of 4. For NFS, EFS and object stores. Since Linux 5.4 the default of NFS
            is 128, far too little for streams over a fast network. Before that it was 15 times C(rsize). For FUSE
            it is 128 too, or less if the program asks for less.
          - At boot, a unit that belongs to the mount sets it, after the udev rule of nfs-utils.
          - C(amazon-efs-utils) sets 15 times C(rsize) by itself, on Ubuntu 24.04 two seconds after the mount, unless
            C(optimize_readahead = false) is in C(/etc/amazon/efs/efs-utils.conf).
          - M(gpufleet.node.nvme_scheduler) sets that of disks.
        type: int
      tunables:
        description:
          - Parameters of the client. For V(lustre) and V(gpfs) only.
          - For V(lustre), they are set for the file system of this mount. The names are those of C(lctl set_param)
            without the instance or C(*), such as C(llite.max_read_ahead_mb), C(osc.max_rpcs_in_flight) or
            C(mdc.max_mod_rpcs_in_flight). They begin with C(llite), C(lmv), C(lov),
            C(mdc), C(osc) or C(ldlm.namespaces). Each is set on every instance and read back, and an instance with
            another value is named. C(ldlm.namespaces.lru_size) must be above 0, because 0 reads back as the number of
            locks.
          - Values mean what they mean to C(lctl set_param), so that V(16M) for C(osc.max_pages_per_rpc) is the
            same as 4096 pages of 4 KiB.
          - They are never set for the whole cluster (C(lctl set_param -P)). At boot, a unit that belongs to the mount
            sets them.
          - For V(gpfs), they are attributes of C(mmchconfig), such as C(pagepool), and are compared with what
            C(mmdiag --config) has in effect on this node. C(mmchconfig) is never called, because it writes into the
            database of the cluster. A value that differs is listed in RV(unmanaged) with the command for an
            administration node. It is pending if the cluster has the declared value and the daemon of this node
            was not restarted since.
        type: dict
seealso:
  - module: gpufleet.node.nvme_scheduler
  - name: nfs(5)
    description: The options of NFS.
    link: https://man7.org/linux/man-pages/man5/nfs.5.html
  - name: mount.ceph(8)
    description: The options of Ceph.
    link: https://docs.ceph.com/en/latest/man/8/mount.ceph/
  - name: Lustre Software Release Manual
    description: The options of Lustre, and the parameters of its client.
    link: https://doc.lustre.org/lustre_manual.xhtml
  - name: Mount filesystems
    description: The options of WekaFS.
    link: https://docs.weka.io/weka-filesystems-and-object-stores/mounting-filesystems
  - name: VAST NFS
    description: The options of the client of VAST.
    link: https://vastnfs.vastdata.com/docs/4.0/usage/mount-params.html
  - name: amazon-efs-utils
    description: The options of EFS.
    link: https://github.com/aws/efs-utils
  - name: mmchconfig
    description: The attributes of Storage Scale.
    link: https://www.ibm.com/docs/en/storage-scale/5.2.3?topic=reference-mmchconfig-command
  - name: rclone mount
    description: The options of rclone as a mount helper.
    link: https://rclone.org/commands/rclone_mount/
  - name: systemd.mount(5)
    description: How mounts are made at boot.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.mount.html
"""

EXAMPLES = r"""
- name: A data set from an NFS server, with eight connections and a large read-ahead
  gpufleet.node.filesystems:
    mounts:
      - path: /data
        source: nfs1.example.com:/export/data
        fstype: nfs
        options: [vers=4.2, rsize=1048576, wsize=1048576, nconnect=8, actimeo=60, hard]
        read_ahead_kb: 15360

- name: The same over RDMA, with a local scratch disk and memory for hot data
  gpufleet.node.filesystems:
    mounts:
      - path: /data
        source: nfs1.example.com:/export/data
        fstype: nfs
        options: [vers=3, proto=rdma, port=20049]
      - path: /scratch
        source: UUID=6f1dbd5c-2f3e-44c8-9a39-a5a1b2b8e3a4
        fstype: xfs
        options: [noatime]
      - path: /hot
        fstype: tmpfs
        options: [size=256g, noatime, nosuid, nodev]

- name: A scratch file system on two NVMe drives, made anew at boot if a stop has emptied them
  gpufleet.node.filesystems:
    mounts:
      - path: /scratch
        fstype: xfs
        options: [noatime]
        made_of:
          drives:
            - /dev/disk/by-id/nvme-SAMSUNG_MZWLO3T8HCLS_S794NG0W300101
            - /dev/disk/by-id/nvme-SAMSUNG_MZWLO3T8HCLS_S794NG0W300102
          ephemeral: true

- name: A Lustre file system, with more and larger RPCs to its servers
  gpufleet.node.filesystems:
    mounts:
      - path: /lustre
        source: mgs1@o2ib:mgs2@o2ib:/fs1
        fstype: lustre
        options: [flock, noatime]
        tunables:
          llite.max_read_ahead_mb: 1024
          osc.max_pages_per_rpc: 16M
          osc.max_rpcs_in_flight: 64

- name: CephFS, with a read-ahead of 64 MiB
  gpufleet.node.filesystems:
    mounts:
      - path: /ceph
        source: mon1.example.com,mon2.example.com,mon3.example.com:/datasets
        fstype: ceph
        options: [name=gpu, secretfile=/etc/ceph/gpu.secret, fs=cephfs, rasize=67108864, recover_session=clean]

- name: BeeGFS and WekaFS, whose clients are installed
  gpufleet.node.filesystems:
    mounts:
      - path: /beegfs
        fstype: beegfs
        options: [cfgFile=/etc/beegfs/beegfs-client.conf]
      - path: /weka
        source: backend1.example.com,backend2.example.com/default
        fstype: wekafs
        options: [num_cores=4, net=ib0, net=ib1, readcache, readahead_kb=65536]

- name: A file system of VAST over TCP, with 32 connections to 16 addresses
  gpufleet.node.filesystems:
    mounts:
      - path: /vast
        source: 10.0.0.1:/datasets
        fstype: nfs
        options: [vers=3, nconnect=32, remoteports=10.0.0.1-10.0.0.16, spread_reads, spread_writes, noextend]

- name: EFS through an access point, and a bucket for checkpoints with a cache on a local disk
  gpufleet.node.filesystems:
    mounts:
      - path: /home
        source: fs-0123456789abcdef0:/
        fstype: efs
        options: [tls, iam, accesspoint=fsap-0123456789abcdef0]
      - path: /checkpoints
        source: s3:checkpoints
        fstype: rclone
        options: [config=/etc/rclone.conf, cache_dir=/scratch/rclone, vfs_cache_mode=full, allow_other]
        read_ahead_kb: 4096

- name: Check that Storage Scale is mounted, with a page pool of 16 GiB in effect
  gpufleet.node.filesystems:
    mounts:
      - path: /gpfs/gpfs0
        source: gpfs0
        fstype: gpfs
        tunables:
          pagepool: 16G

- name: Unmount what this module mounted, and leave the data as it is
  gpufleet.node.filesystems:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The mount point, the unit, or the file.
      type: str
    setting:
      description: What is set on it, C(mount) for what is mounted there.
      type: str
      sample: nconnect
    before:
      description: The value that was found.
      type: raw
    after:
      description: The value that was declared.
      type: raw
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
    takes_effect:
      description: C(now), or C(reboot) when it has to wait for that.
      type: str
needs:
  description:
    - What must still happen. C(reboot) where a mount has to be made anew (it can also be unmounted, and
      the module run again), C(remount) where the mounts that share its connections have to be made anew
      too, C(daemon-reload) where systemd must not read its units yet, C(mount of /gpfs/gpfs0) where the
      service of a file system has to mount it, and C(restart of mmfsd) where the daemon of Storage Scale
      has to read the configuration of its cluster again.
  returned: always, unless the declaration was refused
  type: list
  elements: str
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What was declared and the kernel or the server did not accept, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
    reason:
      description: Why.
      type: str
      sample: the server allows 524288
conflicts:
  description: Who else sets what is declared.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Always C(fstab).
      type: str
      sample: fstab
    path:
      description: The file.
      type: str
    line:
      description: The line in it, where there is one.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: The mount point.
      type: str
      sample: /data
    value:
      description: What the line mounts there.
      type: str
      sample: nfs nfs1:/export/old
    wins:
      description: Always C(us).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether RV(needs) has a reboot.
  returned: always, unless the declaration was refused
  type: bool
reboot_reasons:
  description: Why.
  returned: always, unless the declaration was refused
  type: list
  elements: str
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(in_use), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look)
          or C(no_disk).
      type: str
    object:
      description: What it was about.
      type: str
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The existing mounts that are declared, or that this module made.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    mounts:
      description:
        - By mount point the source, the type, all options as the kernel shows them, the declared read-ahead, and the
          declared tunables of Lustre and Storage Scale. Of EFS and object stores, the source and the type are those
          that can be declared, where the program that serves the mount says which.
      type: dict
      sample:
        /data:
          source: nfs1:/export/data
          fstype: nfs4
          options: [rw, relatime, vers=4.2, rsize=1048576, wsize=1048576, nconnect=8, proto=tcp]
          read_ahead_kb: 15360
boot:
  description: What our units mount at the next boot.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    mounts:
      description: By mount point the source, the type, the options, the read-ahead and the tunables.
      type: dict
      sample:
        /data: {source: "nfs1:/export/data", fstype: nfs, options: [nconnect=8], read_ahead_kb: 15360}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
