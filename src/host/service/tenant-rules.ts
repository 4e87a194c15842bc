import { lstat, realpath } from 'node:fs/promises'
import { dirname, isAbsolute, normalize } from 'node:path'
import { AgentError, errnoOf } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import type { Backend, Board, Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { isFixedBelow } from '../catalogue/fixed-path.ts'
import { defaultTasks } from '../instance/machine/limits-of.ts'
import { jsonName } from '../spec/component-path.ts'
import type { Tenant } from './configuration.ts'

/** `allowed`, `refused`, or the path, which has to be below one of the tenant's folders. */
type Rule<Value> = 'allowed' | 'refused' | ((value: Value) => string)

/** What of the host a tenant may give a machine, by the kind of the backend. The administrator may give it all. */
const RULES: { readonly [Kind in keyof Backend]-?: Rule<NonNullable<Backend[Kind]>> } = {
  // What another host has is the administrator's.
  file: ({ path, host }) => (host === '' ? path : ''),
  passt: 'allowed',
  // An interface of the host, or a new one on any of its bridges.
  tap: 'refused',
  // AF_VSOCK belongs to no network namespace: every process of the host can dial the guest.
  vhostVsock: 'refused',
  vsockDaemon: 'allowed',
  vhostUser: ({ socket }) => socket,
  // A guest's root could make a set-user-ID program or a device in a shared folder, for the tenant to use on the host.
  virtiofsd: 'refused',
  console: 'allowed',
  content: ({ path }) => path,
  folder: 'refused',
  userNetwork: 'refused',
}

const BOARD_PATHS = ['kernel', 'initrd', 'vmlinux'] as const satisfies readonly (keyof Board)[]

/** Throws PERMISSION_DENIED naming the first part of a tenant's specification that is of the host. */
export async function checkTenantSpecification(
  tenant: Tenant,
  { board, backends, limits }: Specification,
): Promise<void> {
  const tasks = limits?.tasks ?? 0
  if (board !== undefined && tasks > defaultTasks(board))
    throw denied(`specification.limits.tasks: ${tasks}, want at most ${defaultTasks(board)} for a tenant`)
  for (const name of BOARD_PATHS) {
    const path = board?.[name] ?? ''
    if (path !== '') await checkPath(tenant, `specification.board.${name}`, path)
  }
  for (const [key, backend] of Object.entries(backends)) {
    await checkTenantBackend(tenant, `specification.backends[${JSON.stringify(key)}]`, backend)
  }
}

/** Throws PERMISSION_DENIED beginning with `where` when the backend is of the host. */
export async function checkTenantBackend(tenant: Tenant, where: string, backend: Backend): Promise<void> {
  for (const [kind, rule] of Object.entries(RULES)) {
    const value = backend[kind as keyof Backend]
    if (value === undefined || rule === 'allowed') continue
    if (rule === 'refused') throw denied(`${where}: ${jsonName(kind)} is for the administrator only`)
    // The table ties each rule to its kind; Object.entries loses that tie.
    const path = (rule as (value: unknown) => string)(value)
    await checkPath(tenant, `${where}.${jsonName(kind)}`, path)
  }
}

/** One text for all failures, so that a tenant learns nothing of the host's files. */
async function checkPath({ name, folders }: Tenant, where: string, path: string): Promise<void> {
  if (isAbsolute(path) && normalize(path) === path) {
    for (const folder of folders) if (isWithin(path, folder) && (await isFixed(path, folder))) return
  }
  throw denied(`${where}: ${JSON.stringify(path)} is not in a folder of tenant ${name}`)
}

/**
 * Whether the path leads to something below the folder, and only the administrator could make it lead elsewhere: it is opened
 * later, at each start of the machine.
 */
async function isFixed(path: string, folder: string): Promise<boolean> {
  try {
    const real = `${await realpath(folder)}${path.slice(folder.length)}`
    return (await realpath(path)) === real && (await isFixedBelow(dirname(real), await lstat(real)))
  } catch (error) {
    if (errnoOf(error) === undefined) throw error
    return false
  }
}

/** Folders of tenants in which others than the administrator can replace files, so that no file there is taken. */
export async function openFolders(tenants: readonly Tenant[]): Promise<readonly string[]> {
  const folders = [...new Set(tenants.flatMap((tenant) => tenant.folders))]
  const isOpen = folders.map(async (folder) => {
    const real = await realpath(folder).catch(() => undefined)
    return real !== undefined && !(await isFixedBelow(real))
  })
  const answers = await Promise.all(isOpen)
  return folders.filter((_, index) => answers[index])
}

function denied(message: string): AgentError {
  return new AgentError('PERMISSION_DENIED', message)
}
