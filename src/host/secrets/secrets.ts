import { mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import type { Secret } from '../../gen/microvm/instance/v1/secret.ts'
import { isUuid, specKey } from '../spec/spec-key.ts'

/** The secrets of machines, each of which belongs to a tenant, or with an empty name to the administrator. */
export interface Secrets {
  set(tenant: string, uuid: string, value: Uint8Array): Promise<Secret>
  /** By tenant and UUID; of all tenants when that is undefined. */
  list(tenant: string | undefined): Promise<readonly Secret[]>
  remove(tenant: string, uuid: string): Promise<void>
  /** The file that has the value, for programs that read it. Rejects with NOT_FOUND. */
  file(tenant: string, uuid: string): Promise<string>
}

/** Enough for a certificate and a key of RSA-4096, and some that sign it. */
export const MAX_SECRET_BYTES = 16_384
/** Of a tenant. */
const MAX_SECRETS = 1024

/** What is being written has this at its end. */
const UNFINISHED = '.new'

/** Keeps each secret in a file of mode 0600 below the folder, which the first secret makes. */
export async function openSecrets(folder: string): Promise<Secrets> {
  for (const owner of await names(folder))
    for (const name of await names(join(folder, owner)))
      if (name.endsWith(UNFINISHED)) await rm(join(folder, owner, name), { force: true })
  const pathOf = (tenant: string, uuid: string) => join(folder, folderOf(tenant), checkedUuid(uuid))
  const described = async (tenant: string, uuid: string): Promise<Secret> => {
    const { mtimeMs } = await stat(pathOf(tenant, uuid))
    return { uuid, tenant, setMs: BigInt(Math.round(mtimeMs)) }
  }
  return {
    set: async (tenant, uuid, value) => {
      if (value.length === 0 || value.length > MAX_SECRET_BYTES)
        throw new AgentError(
          'INVALID_ARGUMENT',
          `value: ${value.length} bytes, want 1 to ${MAX_SECRET_BYTES}`,
        )
      const path = pathOf(tenant, uuid)
      const present = await names(join(folder, folderOf(tenant)))
      if (present.length >= MAX_SECRETS && !present.includes(checkedUuid(uuid)))
        throw new AgentError('RESOURCE_EXHAUSTED', `secrets: ${present.length}, want at most ${MAX_SECRETS}`)
      await writeWhole(path, value)
      return await described(tenant, checkedUuid(uuid))
    },
    list: async (tenant) => {
      const owners =
        tenant === undefined ? (await names(folder)).flatMap((name) => ownerOf(name) ?? []) : [tenant]
      const found: Secret[] = []
      for (const owner of owners.toSorted())
        for (const name of (await names(join(folder, folderOf(owner)))).toSorted())
          if (!name.endsWith(UNFINISHED)) found.push(await described(owner, name))
      return found
    },
    remove: (tenant, uuid) => rm(pathOf(tenant, uuid), { force: true }),
    file: async (tenant, uuid) => {
      const path = pathOf(tenant, uuid)
      if ((await stat(path).catch(absent)) !== undefined) return path
      throw new AgentError(
        'NOT_FOUND',
        `secret ${checkedUuid(uuid)}: not found, want it set before (./microvm secret)`,
      )
    },
  }
}

/** A mistyped call may have the secret itself here, so no text has what was given. */
function checkedUuid(text: string): string {
  const key = UUID_LENGTHS.includes(text.length) ? specKey(text) : undefined
  if (key !== undefined && isUuid(key)) return key
  throw new AgentError('INVALID_ARGUMENT', 'uuid: not a UUID')
}

/** Of the notations of a UUID. */
const UUID_LENGTHS: readonly number[] = [32, 36, 38, 45]

const ADMIN = 'admin'
const TENANT = 'tenant-'

/** Tenants' names hold no `/`. */
function folderOf(tenant: string): string {
  return tenant === '' ? ADMIN : `${TENANT}${tenant}`
}

function ownerOf(name: string): string | undefined {
  if (name === ADMIN) return ''
  return name.startsWith(TENANT) ? name.slice(TENANT.length) : undefined
}

async function names(folder: string): Promise<readonly string[]> {
  return (await readdir(folder).catch(absent)) ?? []
}

function absent(error: unknown): undefined {
  if (errnoOf(error) !== 'ENOENT') throw error
}

/** A reader finds the old value or the new one, also after a crash of the host. */
async function writeWhole(path: string, value: Uint8Array): Promise<void> {
  const unfinished = `${path}${UNFINISHED}`
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await rm(unfinished, { force: true })
    await using file = await open(unfinished, 'wx', 0o600)
    await file.writeFile(value)
    await file.sync()
    await rename(unfinished, path)
    await using folder = await open(dirname(path))
    await folder.sync()
  } catch (error) {
    await rm(unfinished, { force: true }).catch(() => {})
    const code = errnoOf(error) === 'ENOSPC' ? 'RESOURCE_EXHAUSTED' : 'INTERNAL'
    throw new AgentError(code, `secret ${basename(path)}: not written: ${errnoOf(error)}`, { cause: error })
  }
}
