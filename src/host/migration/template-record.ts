import { createHash, type Hash } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import { Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { canonicalBytes } from '../../rpc/canonical.ts'
import { TEMPLATE_NAME } from '../instance/moves.ts'
import { fileError } from '../instance/snapshots/overlay-file.ts'
import { pathOf } from '../spec/component-path.ts'
import type { HostFacts } from './manifest.ts'
import { factsOf } from './memory-file.ts'

/** What is kept of a template beside its saved machine, in a file of its own. */
export interface TemplateRecord {
  readonly name: string
  /** The same for templates that differ in the content of their files or in QEMU alone: the latest replaces the others. */
  readonly place: string
  readonly createdMs: number
  readonly specification: Specification
}

/** Templates that other versions of the link were made with have other names. */
const VERSION = 1

/** The record of a template of the machine. Throws FAILED_PRECONDITION for a file that cannot be read. */
export async function templateOf(
  specification: Specification,
  { host, digestOf }: { readonly host: HostFacts; readonly digestOf: (path: string) => Promise<string> },
): Promise<Omit<TemplateRecord, 'createdMs'>> {
  const machine = canonicalBytes(Specification, specification)
  const hash = createHash('sha256').update(`${VERSION}\n`).update(machine)
  for (const name of ['qemu', 'acceleration', 'cpu'] as const) hash.update(`\n${host[name]}`)
  for (const { field, path } of filesOf(specification)) {
    const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `${field}: ${path}: ${text}`)
    const status = await stat(path, { bigint: true }).catch((error) => {
      throw fail(errnoOf(error) ?? messageOf(error))
    })
    if (!status.isFile()) throw fail('want a file')
    // A disk that was written, even with the same, is another one to what is saved (saved-folder.ts).
    hash.update(`\n${field}\n${await digestOf(path)}\n${status.mtimeNs}`)
  }
  const name = `template-${shortOf(hash)}`
  return { name, place: shortOf(createHash('sha256').update(machine)), specification }
}

function shortOf(hash: Hash): string {
  return hash.digest('hex').slice(0, 12)
}

/** The files of the host whose content a guest has in its memory. */
function filesOf({ backends, board }: Specification) {
  const boot = (['kernel', 'initrd', 'vmlinux'] as const).map((name) => ({
    field: `board.${name}`,
    path: board?.[name] ?? '',
  }))
  const disks = Object.entries(backends).map(([key, { file }]) => ({
    field: pathOf('backends', key, 'file', 'path'),
    path: file?.path ?? '',
  }))
  return [...boot, ...disks.sort((a, b) => (a.field < b.field ? -1 : 1))].filter(({ path }) => path !== '')
}

/** The digests of the contents of files. One that looks as before is not read again. */
export function fileDigests(): (path: string) => Promise<string> {
  const known = new Map<string, { readonly looks: string; readonly digest: string }>()
  return async (path) => {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true })
    const looks = [dev, ino, size, mtimeNs, ctimeNs].join(' ')
    const before = known.get(path)
    if (before?.looks === looks) return before.digest
    const { digest } = await factsOf(path)
    known.delete(path)
    known.set(path, { looks, digest })
    const [oldest] = known.keys()
    if (known.size > MOST_DIGESTS && oldest !== undefined) known.delete(oldest)
    return digest
  }
}

const MOST_DIGESTS = 1000

export interface TemplateRecords {
  /** Those that can be read, the one that was used longest ago first. */
  list(): Promise<readonly TemplateRecord[]>
  /** The names of all, also of those that cannot be read. */
  names(): Promise<readonly string[]>
  write(record: TemplateRecord): Promise<void>
  /** Notes that a clone was made. */
  used(name: string): Promise<void>
  remove(name: string): Promise<void>
}

/** The records in a folder, one file each. */
export function templateRecords(folder: string): TemplateRecords {
  const pathOfRecord = (name: string) => join(folder, `${name}.json`)
  const names = async () => {
    const files = await readdir(folder).catch((error) => {
      if (errnoOf(error) !== 'ENOENT') throw fileError(folder, error)
      return []
    })
    return files.flatMap((file) => {
      const [name = '', rest] = file.split('.json')
      return rest === '' && TEMPLATE_NAME.test(name) ? [name] : []
    })
  }
  return {
    names,
    list: async () => {
      const found = (await names()).map(async (name) => {
        const path = pathOfRecord(name)
        try {
          const { mtimeMs } = await stat(path)
          const { version, place, createdMs, specification } = JSON.parse(await readFile(path, 'utf8'))
          if (version !== VERSION || typeof place !== 'string' || !Number.isSafeInteger(createdMs)) return []
          const bytes = Buffer.from(String(specification), 'base64')
          return [{ mtimeMs, record: { name, place, createdMs, specification: Specification.decode(bytes) } }]
        } catch {
          return []
        }
      })
      const all = (await Promise.all(found)).flat()
      return all.sort((a, b) => a.mtimeMs - b.mtimeMs).map(({ record }) => record)
    },
    write: async ({ name, place, createdMs, specification }) => {
      const bytes = Buffer.from(Specification.encode(specification).finish()).toString('base64')
      const text = JSON.stringify({ version: VERSION, place, createdMs, specification: bytes })
      const path = pathOfRecord(name)
      try {
        await mkdir(folder, { recursive: true, mode: 0o700 })
        await writeFile(`${path}.new`, `${text}\n`, { mode: 0o600, flush: true })
        await rename(`${path}.new`, path)
      } catch (error) {
        await rm(`${path}.new`, { force: true })
        throw fileError(path, error)
      }
    },
    used: async (name) => {
      const now = new Date()
      await utimes(pathOfRecord(name), now, now)
    },
    remove: (name) => rm(pathOfRecord(name), { force: true }),
  }
}
