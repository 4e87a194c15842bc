import type { MountEntry } from './mounts.ts'

/**
 * Parses a line of /proc/PID/mountinfo (proc(5)): `36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/sda1
 * rw,errors=continue`. Any number of tags and a lone dash follow the options. Splits at single spaces, because a source
 * may be empty.
 */
export function parseMountLine(line: string): MountEntry {
  const fields = line.split(' ')
  const dash = fields.indexOf('-', 6)
  const [id, parentId, device, , mountPoint, options] = fields
  const [type, source, fileSystemOptions] = fields.slice(dash + 1)
  const [major, minor] = device?.split(':') ?? []
  if (dash < 0 || mountPoint === undefined || options === undefined || type === undefined) {
    throw new Error(`mountinfo: invalid line "${line}"`)
  }
  return {
    id: Number(id),
    parentId: Number(parentId),
    mountPoint: unescapeOctal(mountPoint),
    type,
    source: unescapeOctal(source ?? ''),
    options,
    isReadOnly: fileSystemOptions?.split(',').includes('ro') ?? false,
    major: Number(major),
    minor: Number(minor),
  }
}

/** Decodes a path of mountinfo or swaps: a backslash and three octal digits stand for space, tab, `#` and others. */
export function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}
