/** The numbers of a version such as `7.2.22`, or `7.2.22 (Debian 1:7.2)`; undefined for other texts. */
export function versionOf(text: string): readonly number[] | undefined {
  const [, numbers] = /^(\d{1,6}(?:\.\d{1,6}){1,3})(?: [^\p{Cc}]{1,200})?$/u.exec(text) ?? []
  return numbers?.split('.').map(Number)
}

/** The one machine that QEMU has in one version only. */
const UNVERSIONED = 'microvm'

/**
 * Why the QEMU of one host does not take a running machine of another one; undefined where it may, and QEMU itself decides. A later QEMU
 * has the versioned machines of earlier ones. `from` and `to` are as in {@link versionOf}; a source without a version wants none.
 */
export function qemuMisfit(versions: {
  readonly from: string
  readonly to: string
  readonly machine: string
}): string | undefined {
  const { from, machine, to } = versions
  const wants = versionOf(from) ?? []
  const has = versionOf(to) ?? []
  const index = wants.findIndex((want, at) => want !== (has[at] ?? 0))
  if (index === -1) return undefined
  const isLater = (has[index] ?? 0) > (wants[index] ?? 0)
  const wanted = `has QEMU ${to}, want ${wants.join('.')}`
  if (machine === UNVERSIONED) return `${wanted} for machine ${machine}, which has no versions`
  return isLater ? undefined : `${wanted} or later`
}
