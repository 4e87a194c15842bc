/** Attributes that tell elements of one name apart. */
const IDENTITIES: Readonly<Record<string, string>> = {
  ...{ controller: 'type', channel: 'type', disk: 'device', timer: 'name', entry: 'name', graphics: 'type' },
}

/**
 * The attributes and texts of an XML text by their paths, such as `devices/disk[cdrom]/target@dev`, and the elements that
 * have neither. Knows what libvirt writes: no comments, no CDATA.
 */
export function xmlFields(xml: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>()
  const open: string[] = []
  for (const [, end, name = '', words = '', empty, text = ''] of xml.matchAll(
    /<(\/?)([\w-]+)((?:\s+[\w-]+="[^"]*")*)\s*(\/?)>([^<]*)/g,
  )) {
    if (end === '/') {
      open.pop()
      continue
    }
    const attributes = [...words.matchAll(/([\w-]+)="([^"]*)"/g)].map(
      ([, key = '', value = '']) => [key, value] as const,
    )
    const identity = attributes.find(([key]) => key === IDENTITIES[name])?.[1]
    const own = identity === undefined ? name : `${name}[${identity}]`
    // The root's own name is no part of a path.
    const at = [...open, own].slice(1).join('/')
    for (const [key, value] of attributes) fields.set(`${at}@${key}`, value)
    if (text.trim() !== '') fields.set(at, text.trim())
    else if (empty === '/' && attributes.length === 0) fields.set(at, 'present')
    if (empty !== '/') open.push(own)
  }
  return fields
}
