import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { messageOf } from '../../base/errors.ts'
import { VMMetadata } from '../../gen/vm.ts'
import { checkLinks } from '../../handlers/network/vm-metadata/point-to-point.ts'
import { UsageError } from '../command-line/parse.mjs'

/**
 * Reads the file of `--metadata`: YAML, of which JSON is a part, with the fields of VMMetadata (proto/vm.proto) by the
 * names they have there. Throws {@link UsageError} naming the field for what a guest could not use.
 */
export function readMetadata(path: string): VMMetadata {
  const refuse = (reason: string): never => {
    throw new UsageError(`--metadata ${path}: ${reason}`)
  }
  const { name, network_config: network } = fieldsOf(
    load(path, refuse),
    ['name', 'network_config'],
    '',
    refuse,
  )
  const { v4, v6 } = fieldsOf(network, ['v4', 'v6'], 'network_config', refuse)
  const end = (value: unknown, where: string) => {
    if (value === undefined || value === null) return undefined
    const { ip, peer_ip: peerIp } = fieldsOf(value, ['ip', 'peer_ip'], where, refuse)
    return { ip: textOf(ip, `${where}.ip`, refuse), peerIp: textOf(peerIp, `${where}.peer_ip`, refuse) }
  }
  const metadata = VMMetadata.create({
    name: textOf(name, 'name', refuse),
    networkConfig: { v4: end(v4, 'network_config.v4'), v6: end(v6, 'network_config.v6') },
  })
  const [problem] = checkLinks(metadata.networkConfig).problems
  return problem === undefined ? metadata : refuse(problem)
}

type Refuse = (reason: string) => never

function load(path: string, refuse: Refuse): unknown {
  try {
    return parse(readFileSync(path, 'utf8'))
  } catch (error) {
    // The lines after the first one show the place, which the first one has named.
    return refuse(messageOf(error).split('\n')[0]?.replace(/:$/, '') ?? '')
  }
}

/** The fields of a mapping, of these names and no other; none for what is absent. `where` is empty at the top. */
function fieldsOf<Name extends string>(
  value: unknown,
  names: readonly Name[],
  where: string,
  refuse: Refuse,
): { readonly [Key in Name]?: unknown } {
  if (value === undefined || value === null) return {}
  const has = `${where === '' ? 'it' : where} has ${names.join(' and ')}`
  if (typeof value !== 'object' || Array.isArray(value)) return refuse(`${has}, and is no ${kindOf(value)}`)
  const fields: { [Key in Name]?: unknown } = {}
  for (const [key, field] of Object.entries(value)) {
    const name = names.find((candidate) => candidate === key)
    if (name === undefined) return refuse(`${has}, and no ${key}`)
    fields[name] = field
  }
  return fields
}

function textOf(value: unknown, where: string, refuse: Refuse): string {
  if (value === undefined || value === null) return ''
  return typeof value === 'string'
    ? value
    : refuse(`${where} is a text, and no ${kindOf(value)}: put it in quotes`)
}

function kindOf(value: unknown): string {
  return Array.isArray(value) ? 'list' : typeof value === 'string' ? 'text' : typeof value
}
