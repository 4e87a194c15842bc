import type { Mount } from '../gen/oci.ts'

/** Runtimes go by the options alone: a mount of type `bind` without one of these would not be a bind mount. */
export function withBindOption(mount: Mount): Mount {
  const isBind = mount.options.includes('bind') || mount.options.includes('rbind')
  return mount.type === 'bind' && !isBind ? { ...mount, options: [...mount.options, 'rbind'] } : mount
}
