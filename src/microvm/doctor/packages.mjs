/**
 * A package that machines of the daemon use. `names` has its name by Debian's release where that is not the same in all.
 * @typedef {object} HostPackage
 * @property {string} name
 * @property {Readonly<Record<string, string>>} [names]
 * @property {string} why
 * @property {boolean} isNeeded whether no machine can do without
 */

/** @type {readonly HostPackage[]} */
export const HOST_PACKAGES = [
  { name: 'qemu-system-x86', why: 'runs machines', isNeeded: true },
  { name: 'gcc', why: 'builds the holder', isNeeded: true },
  { name: 'libc6-dev', why: 'builds the holder', isNeeded: true },
  // The C implementation of Debian 12 comes with QEMU.
  { name: 'virtiofsd', names: { 12: 'qemu-system-common' }, why: 'shares folders', isNeeded: false },
  { name: 'passt', why: 'networks of machines', isNeeded: false },
  { name: 'iproute2', why: 'taps and bridges', isNeeded: false },
  { name: 'nftables', why: 'network filters of machines', isNeeded: false },
  { name: 'ovmf', why: 'boots disks by UEFI', isNeeded: false },
  { name: 'qemu-block-extra', why: 'has disks by https and iscsi', isNeeded: false },
  { name: 'qemu-utils', why: 'makes disk images', isNeeded: false },
]

/**
 * @param {HostPackage} wanted
 * @param {string} release such as `12`
 */
export function nameIn({ name, names = {} }, release) {
  return names[release] ?? name
}
