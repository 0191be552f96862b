# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of kernel arguments: those that nobody may change here, and those that are known, for the nearest one."""

from __future__ import annotations

from typing import Dict

_TO_BOOT = """
root rootflags rootfstype rootwait rootdelay ro rw initrd noinitrd resume resume_offset boot ostree fips
cryptdevice luks zfs ip nfsroot BOOT_IMAGE net.ifnames biosdevname
"""
_TO_START = """
init rdinit single emergency rescue S 1 2 3 4 5 systemd.unit rd.systemd.unit rd.break break systemd.debug_shell
rd.shell rd.rescue rd.emergency
"""
_CONSOLES = "console earlycon earlyprintk netconsole"
REFUSED: Dict[str, str] = {
    **dict.fromkeys(_TO_BOOT.split(), "a wrong value leaves a node that only a rescue system repairs"),
    **dict.fromkeys(_TO_START.split(), "it decides what the machine starts"),
    **dict.fromkeys(_CONSOLES.split(), "without the console a node that does not boot cannot say why"),
    **dict.fromkeys(("hugepages", "hugepagesz"), "it counts by its place among others"),
}
REFUSED_PREFIXES = ("rd.luks", "rd.lvm", "rd.md", "rd.dm", "rd.znet", "luks.", "systemd.verity", "systemd.run")
# YAML reads on, off, yes and no as booleans, and these take such words as values.
_TAKING_WORDS = """
acpi amd_iommu audit gather_data_sampling hugetlb_free_vmemmap init_on_alloc init_on_free intel_iommu iommu
l1tf mds mitigations mmio_stale_data nmi_watchdog nohz numa numa_balancing pcie_aspm preempt
pti randomize_kstack_offset reg_file_data_sampling retbleed spec_rstack_overflow spec_store_bypass_disable
spectre_v2 spectre_v2_user srbds transparent_hugepage transparent_hugepage_shmem tsx tsx_async_abort
"""
WORDS_OF_YAML = frozenset(_TAKING_WORDS.split())
_KNOWN = """
acpi acpi_enforce_resources acpi_irq_balance acpi_irq_nobalance acpi_osi amd_iommu amd_iommu_intr amd_pstate
apic apparmor arm64.nosve audit audit_backlog_limit bgrt_disable bootconfig cgroup_disable cgroup_enable
cgroup_no_v1 clocksource cma coherent_pool cpu0_hotplug cpufreq.off cpuidle.off crash_kexec_post_notifiers
crashkernel debug debugfs default_hugepagesz delayacct dis_ucode_ldr disable_mtrr_cleanup dyndbg earlycon ecc
edac_report efi efi_no_storage_paranoia efi_pstore elevator enforcing fastboot force fsck.mode fsck.repair
gather_data_sampling gpt hardened_usercopy hashdist hpet hugepages hugepagesz hugetlb_cma hugetlb_free_vmemmap
idle ima_appraise init_on_alloc init_on_free initcall_debug intel_idle.max_cstate intel_iommu intel_pstate
intremap io_delay iomem iommu iommu.passthrough iommu.strict irqaffinity irqfixup irqpoll isolcpus kasan kaslr
keepinitrd kernelcore kfence.sample_interval kgdboc kpti kvm.nx_huge_pages l1tf lapic lapic_timer_c2_ok lockdown
log_buf_len loglevel lsm max_loop maxcpus mce mds mem mem_encrypt mem_sleep_default memhp_default_state memmap
memory_hotplug.memmap_on_memory memtest migration_debug mitigations mminit_loglevel mmio_stale_data
module.sig_enforce module_blacklist movable_node movablecore msi nmi_watchdog no_console_suspend
no_hash_pointers no_timer_check noaliencache noapic noaslr nochunk noefi nohalt nohlt nohpet nohugeiomap
nohugevmalloc nohz nohz_full nointremap nointroute nokaslr nolapic nolapic_timer nomca nomce nomodeset nomodule
nopat nopcid nopku nopti nopvspin noresume noretbleed nosgx nosmap nosmep nosmp nosmt nosoftlockup
nospec_store_bypass_disable nospectre_v1 nospectre_v2 nosplash notsc noudev nowatchdog nox2apic noxsave nr_cpus
numa numa_balancing numa_policy numa_zonelist_order nvme_core.multipath oops page_alloc.shuffle page_owner
page_poison panic panic_on_oops panic_on_taint panic_on_warn panic_print pci pcie_aspm pcie_pme pcie_port_pm
pcie_ports percpu_alloc pm_async possible_cpus preempt print-fatal-signals printk.devkmsg printk.time
processor.max_cstate profile psi pstore pti quiet raid randomize_kstack_offset ras rcu_nocb_poll rcu_nocbs
rcupdate.rcu_expedited reboot reserve reserve_mem reset_devices retbleed rhgb rng_core.default_quality rodata
security selinux serialnumber skew_tick slab_merge slab_nomerge slub_debug slub_min_objects smp
softlockup_all_cpu_backtrace softlockup_panic spec_rstack_overflow spec_store_bypass_disable spectre_v2
spectre_v2_user splash srbds stack_guard_gap swapaccount swiotlb sysrq_always_enabled threadirqs topology
tp_printk trace_buf_size trace_event transparent_hugepage transparent_hugepage_shmem tsc tsx tsx_async_abort
udev.log_level unaligned_scalar_speed unknown_nmi_panic usbcore.autosuspend vdso vga vmalloc vsyscall vt.handoff
watchdog watchdog_thresh workqueue x2apic_phys xsave zswap.enabled
"""
KNOWN = frozenset(_KNOWN.split())
