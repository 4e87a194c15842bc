import { AgentError, messageOf } from '../../base/errors.ts'
import type { RenameRequest } from '../../gen/microvm/agent/v1/lifecycle.ts'
import type { Call } from '../../state/request.ts'
import type { Container } from '../container/container.ts'
import type { ContainerNames, NewNames } from '../container/container-names.ts'
import { faultOfId } from '../container/create-container.ts'
import type { SandboxContext } from './context.ts'
import {
  applyChange,
  bringBack,
  changesNothing,
  checkContent,
  checkHostname,
  type Identity,
  type IdentityChange,
  plannedChange,
  readBefore,
} from './identity.ts'
import type { Sandbox } from './sandbox-state.ts'

/** A call that is not answered yet. */
export interface OpenCall {
  readonly number: bigint
  /** As the call names it; empty for none. */
  readonly containerId: string
}

/**
 * Rename: the sandbox and its containers have other ids from one write of the state on. Host names and files change before
 * it, and are brought back when a step fails, or by the next agent. Throws FAILED_PRECONDITION, naming the container, while
 * one is being changed: also when that begins during the call.
 */
export async function rename(
  context: SandboxContext,
  request: RenameRequest,
  call: Call,
  openCalls: () => readonly OpenCall[],
): Promise<void> {
  checkRequest(request)
  const sandbox = activeSandbox(context)
  const found = newIds(context, request)
  const change = plannedChange(context, sandbox, identityOf(context, request))
  const end = context.containers.names.begin()
  try {
    const commit = () =>
      setNames(context, { request, sandbox, found, number: call.number, open: openCalls() })
    if (changesNothing(change)) commit()
    else await changeAndCommit(context, { sandbox, change, commit, signal: call.signal })
  } finally {
    end()
  }
}

async function changeAndCommit(
  context: SandboxContext,
  renaming: {
    readonly sandbox: Sandbox
    readonly change: IdentityChange
    readonly commit: () => void
    readonly signal: AbortSignal
  },
): Promise<void> {
  const { sandbox, change, commit, signal } = renaming
  const before = await readBefore(context, change)
  context.containers.names.saveBefore(before)
  try {
    await applyChange(context, change)
    signal.throwIfAborted()
    commit()
  } catch (error) {
    await bringBack(context, sandbox, before)
    forgetBefore(context.containers.names, context.log)
    throw error
  }
}

/** Throws FAILED_PRECONDITION, and sets nothing, when calls have changed the sandbox or a container meanwhile. */
function setNames(
  context: SandboxContext,
  renaming: {
    readonly request: RenameRequest
    readonly sandbox: Sandbox
    readonly found: readonly NewId[]
    readonly number: bigint
    readonly open: readonly OpenCall[]
  },
): void {
  const { request, sandbox, found, number, open } = renaming
  if (activeSandbox(context) !== sandbox)
    throw new AgentError('FAILED_PRECONDITION', 'sandbox: is another one')
  const present = newIds(context, request)
  for (const [index, { container }] of found.entries()) {
    if (present[index]?.container === container) continue
    throw new AgentError('FAILED_PRECONDITION', `container '${container.id}': is gone`)
  }
  const renamed = found.map(({ container, newId }) => ({ oldId: container.id, newId }))
  context.containers.names.commit({ ...namesOf(request, found, open), request: number })
  context.oom.queue.renamed()
  context.events.addRenamed({ sandboxId: request.sandboxId, containers: renamed })
}

/** Brings back what a Rename of the previous agent had changed without setting its names. Never throws. */
export async function undoRename(context: SandboxContext, sandbox: Sandbox | undefined): Promise<void> {
  const { names } = context.containers
  if (names.before !== undefined && sandbox !== undefined) await bringBack(context, sandbox, names.before)
  forgetBefore(names, context.log)
}

function forgetBefore(names: ContainerNames, log: SandboxContext['log']): void {
  try {
    names.dropBefore()
  } catch (error) {
    log.warn('undone rename not recorded', { error: messageOf(error) })
  }
}

/** Throws INVALID_ARGUMENT for what cannot be right, whatever containers there are. */
function checkRequest({ sandboxId, hostname, dns, hosts, containers }: RenameRequest): void {
  if (sandboxId !== '') checkId('sandbox_id', sandboxId)
  checkHostname('hostname', hostname)
  checkContent('dns', dns.join('\n'))
  checkContent('hosts', hosts)
  const seen = { old_id: new Set<string>(), new_id: new Set<string>() }
  for (const [index, container] of containers.entries()) {
    const field = `containers[${index}]`
    const { oldId, newId } = container
    const once = (name: keyof typeof seen, id: string) => {
      if (seen[name].has(id)) throw invalid(`${field}.${name}: '${id}' stands there twice`)
      seen[name].add(id)
    }
    once('old_id', oldId)
    checkHostname(`${field}.hostname`, container.hostname)
    checkContent(`${field}.hosts`, container.hosts)
    if (newId === '') continue
    checkId(`${field}.new_id`, newId)
    once('new_id', newId)
    if (oldId === newId) throw invalid(`${field}.new_id: '${newId}' is its id`)
  }
}

function checkId(field: string, id: string): void {
  const fault = faultOfId(id)
  if (fault !== undefined) throw invalid(`${field}: '${id}': ${fault}`)
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', text)
}

function activeSandbox({ sandboxState }: SandboxContext): Sandbox {
  sandboxState.refuseLost()
  const { name, sandbox } = sandboxState.view
  if (sandbox === undefined) throw new AgentError('FAILED_PRECONDITION', `sandbox: not active (${name})`)
  return sandbox
}

interface NewId {
  readonly container: Container
  readonly newId: string
}

/**
 * The containers that get other ids. Ids may change places within a request. Throws NOT_FOUND for an old id that no
 * container has, ALREADY_EXISTS for a new one in use, FAILED_PRECONDITION while any container is being changed.
 */
function newIds({ containers }: SandboxContext, request: RenameRequest): readonly NewId[] {
  const all = request.containers.map(({ oldId, newId }, index) => {
    const container = containers.tryGet(oldId)
    if (container !== undefined) return { container, newId, field: `containers[${index}]` }
    throw new AgentError('NOT_FOUND', `containers[${index}].old_id: no container '${oldId}'`)
  })
  for (const container of containers.list()) checkAtRest(container)
  const renamed = all.filter(({ newId }) => newId !== '')
  const leaving = new Set(renamed.map(({ container }) => container))
  for (const { container, newId, field } of renamed) {
    const present = containers.tryGet(newId)
    if (present !== undefined && !leaving.has(present)) {
      throw new AgentError('ALREADY_EXISTS', `${field}.new_id: '${newId}' is the id of another container`)
    }
    if ('parts' in container.state && container.state.parts.processes.has(newId)) {
      throw new AgentError(
        'ALREADY_EXISTS',
        `${field}.new_id: '${newId}' is the exec id of one of its processes`,
      )
    }
  }
  return renamed
}

/** No call may be at work that has looked an id up, and will tell or take it later. */
function checkAtRest({ id, state, isInTransition }: Container): void {
  const isAdding = 'parts' in state && state.parts.processes.isAdding
  if (!isInTransition && !isAdding) return
  const what = isInTransition ? `is ${state.name}` : 'gets a process'
  throw new AgentError('FAILED_PRECONDITION', `container '${id}': ${what}`)
}

function identityOf({ containers }: SandboxContext, request: RenameRequest): Identity {
  const own = new Map(request.containers.map((entry) => [containers.tryGet(entry.oldId), entry]))
  const { hostname, dns, hosts } = request
  return {
    hostname,
    dns,
    hosts,
    ofContainer: (one: Container) => own.get(one) ?? { hostname: '', hosts: '' },
  }
}

function namesOf(
  { sandboxId }: RenameRequest,
  found: readonly NewId[],
  open: readonly OpenCall[],
): Omit<NewNames, 'request'> {
  const keys = new Map(found.map(({ container }) => [container.id, container.record.key]))
  const numbered = open.filter(({ number }) => number !== 0n)
  return {
    sandboxId: sandboxId === '' ? undefined : sandboxId,
    containers: found.map(({ container, newId }) => ({ ...container.record.fields, id: newId })),
    open: new Set(numbered.map(({ number }) => number)),
    calls: numbered.flatMap(({ number: request, containerId }) => {
      const key = keys.get(containerId)
      return key === undefined ? [] : [{ request, containerId, key }]
    }),
  }
}
