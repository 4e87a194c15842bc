import { AgentError } from '../../base/errors.ts'
import type { MountFlag, Mounts } from './mounts.ts'

/** mount(2) copies one page of options, including the final NUL byte. */
export const MAX_OPTION_BYTES = 4095

/** The limits of a value of fsconfig(2), and of an overlay's layers (OVL_MAX_STACK of the kernel). */
const MAX_VALUE_BYTES = 255
const MAX_LAYERS = 500

/** mountinfo shows all settings in one line, and runc starts no container with a line above 64 KiB. */
const MAX_LINE_BYTES = 60_000

/** For fsconfig(2) and fsmount(2), in place of the options and flags of mount(2). */
export interface OverlaySettings {
  /** `key=value`, or `key`. */
  readonly settings: readonly string[]
  /** MOUNT_ATTR_ constants. */
  readonly attributes: number
}

/**
 * Settings of an overlay whose options are too long for mount(2): one for each lower layer, the first on top. `release`
 * is that of `uname -r`. Throws INVALID_ARGUMENT for more than any kernel takes or no new overlay, UNIMPLEMENTED for
 * more than this kernel takes.
 */
export function overlaySettings(
  { target, type, data, flags }: Parameters<Mounts['mount']>[0],
  release: string,
): OverlaySettings {
  const isNewOverlay = type === 'overlay' && !flags.includes('bind') && !flags.includes('remount')
  const tooLong = `${Buffer.byteLength(data)} bytes of options, want at most ${MAX_OPTION_BYTES}`
  if (!isNewOverlay) throw refused(target, tooLong)
  if (!takesSingleLayers(release))
    throw new AgentError('UNIMPLEMENTED', `mount ${target}: ${tooLong} before Linux 6.7`)
  // A comma after a backslash is part of a path.
  const options = data.match(/(?:\\.|[^\\,])+/gs) ?? []
  const settings = options.flatMap((option) =>
    option.startsWith('lowerdir=') ? layers(option.slice('lowerdir='.length)) : [option],
  )
  checkSize(target, settings)
  return {
    settings: [...settings, ...flags.flatMap((flag) => SUPERBLOCK_FLAGS[flag] ?? [])],
    attributes: flags.reduce((sum, flag) => sum | (ATTRIBUTES[flag] ?? 0), 0),
  }
}

function checkSize(target: string, settings: readonly string[]): void {
  const layers = settings.filter((setting) => /^(lower|data)dir\+=/.test(setting)).length
  if (layers > MAX_LAYERS) throw refused(target, `${layers} lower layers, want at most ${MAX_LAYERS}`)
  for (const setting of settings) {
    const bytes = Buffer.byteLength(setting.slice(setting.indexOf('=') + 1))
    if (bytes > MAX_VALUE_BYTES)
      throw refused(target, `${bytes} bytes in ${setting.slice(0, 60)}…, want at most ${MAX_VALUE_BYTES}`)
  }
  // Some characters are shown as a backslash and three digits.
  const shown = Buffer.byteLength(settings.join(',').replaceAll(/[ \t\n\\#,=:]/g, '\\040'))
  if (shown > MAX_LINE_BYTES)
    throw refused(target, `${shown} bytes of options, want at most ${MAX_LINE_BYTES}`)
}

function refused(target: string, what: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', `mount ${target}: ${what}`)
}

/** Overlays take `lowerdir+` from Linux 6.7 on. */
function takesSingleLayers(release: string): boolean {
  const [major = 0, minor = 0] = release.split('.').map((part) => Number.parseInt(part, 10))
  return major > 6 || (major === 6 && minor >= 7)
}

/** Flags of the file system, and those of the mount (linux/mount.h). `ro` is both, as with mount(2). */
const SUPERBLOCK_FLAGS: Readonly<Partial<Record<MountFlag, string>>> = {
  ro: 'ro',
  synchronous: 'sync',
  dirsync: 'dirsync',
  lazytime: 'lazytime',
}
const ATTRIBUTES: Readonly<Partial<Record<MountFlag, number>>> = {
  ro: 1,
  nosuid: 2,
  nodev: 4,
  noexec: 8,
  noatime: 0x10,
  strictatime: 0x20,
  nodiratime: 0x80,
}

/** `::` precedes a layer of data only. fsconfig(2) takes a layer as it is, without backslashes. */
function layers(value: string): readonly string[] {
  let key = 'lowerdir+'
  return Array.from(value.matchAll(/(?:\\.|[^\\:])+|::?/gs)).flatMap(([part]) => {
    if (!part.startsWith(':')) return [`${key}=${part.replaceAll(/\\(.)/gs, '$1')}`]
    key = part === '::' ? 'datadir+' : 'lowerdir+'
    return []
  })
}
