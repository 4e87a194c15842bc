import { AgentError, type StatusCodeName } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { inStep } from '../../base/step.ts'
import type { Waiting } from '../../state/request.ts'
import type { ProcessOwners } from '../process/owner.ts'
import { Container, type ContainerParts } from './container.ts'
import type { ContainerNames } from './container-names.ts'
import { ContainerRecord, type Records } from './container-record.ts'

export interface FoundContainer {
  readonly container: Container
  readonly parts: ContainerParts
}

/** The containers of the sandbox, including those that are being created. */
export class ContainerRegistry implements ProcessOwners {
  /** By key. */
  readonly #containers = new Map<string, Container>()
  readonly #records: Records

  constructor(records: Records) {
    this.#records = records
  }

  get names(): ContainerNames {
    return this.#records.names
  }

  /**
   * Reserves an id and a cgroup; records nothing yet. Throws INTERNAL when the id is in use, and ALREADY_EXISTS when it is
   * the key of a renamed container. Throws INVALID_ARGUMENT when the cgroup equals, contains or lies in that of another
   * container, because killing one would kill both.
   */
  add(id: string, cgroupPath: string): Container {
    const present = this.tryGet(id)
    if (present !== undefined) {
      throw new AgentError('INTERNAL', `container id '${id}': already exists (${present.state.name})`, {
        fault: 'caller',
      })
    }
    const renamed = this.#containers.get(id)
    if (renamed !== undefined) {
      const text = `container id '${id}': names what container '${renamed.id}' has in the guest, until that is removed`
      throw new AgentError('ALREADY_EXISTS', text)
    }
    for (const other of this.#containers.values()) {
      if (isWithin(cgroupPath, other.cgroupPath) || isWithin(other.cgroupPath, cgroupPath)) {
        const where = `${other.cgroupPath} is the cgroup of container '${other.id}'`
        throw new AgentError('INVALID_ARGUMENT', `linux.cgroupsPath: '${cgroupPath}': ${where}`)
      }
    }
    return this.#put(new ContainerRecord(this.#records, { key: id, cgroupPath }))
  }

  /** Adds a container of the previous agent, in the state `creating` until it is restored. */
  addRestored(record: ContainerRecord): Container {
    return this.#put(record)
  }

  #put(record: ContainerRecord): Container {
    const container = new Container(record)
    this.#containers.set(record.key, container)
    return container
  }

  /** Forgets a removed container or a failed creation, and ends the waits for its transition. */
  drop(container: Container): void {
    this.#containers.delete(container.record.key)
    container.abandon()
  }

  tryGet(id: string): Container | undefined {
    return this.#containers.get(this.names.keyOf(id) ?? '')
  }

  /** The error for an id that no container has; the code differs by call. */
  unknown(id: string, code: StatusCodeName): AgentError {
    const renamed = this.#containers.get(this.names.formerKeyOf(id) ?? '')
    if (renamed === undefined) return unknownContainer(code)
    return new AgentError('NOT_FOUND', `container id '${id}': is '${renamed.id}' now`)
  }

  list(): Container[] {
    return [...this.#containers.values()]
  }

  /** Of the containers whose creation has ended. */
  made(): readonly ContainerParts[] {
    return this.list().flatMap(({ state }) => ('parts' in state ? [state.parts] : []))
  }

  cgroupPaths(): readonly string[] {
    return this.list().map(({ cgroupPath }) => cgroupPath)
  }

  get(id: string, code: StatusCodeName): FoundContainer {
    const container = this.tryGet(id)
    if (container === undefined || !('parts' in container.state)) throw this.unknown(id, code)
    return { container, parts: container.state.parts }
  }

  async waitFor(id: string, code: StatusCodeName, call: Waiting): Promise<FoundContainer> {
    const container = this.tryGet(id)
    if (container?.state.name === 'creating') {
      await inStep('container', `${id}: creating`, () => container.changed(container.state, call.signal))
    }
    return this.get(id, code)
  }

  async waitForLiving(id: string, signal: AbortSignal): Promise<ContainerParts> {
    const { container } = await this.waitFor(id, 'INTERNAL', { signal })
    let { state } = container
    for (; state.name === 'starting' || state.name === 'updating'; { state } = container) {
      await inStep('container', `${id}: ${state.name}`, () => container.changed(state, signal))
    }
    if (state.name === 'paused')
      throw new AgentError('INTERNAL', `container ${id} is paused`, { fault: 'caller' })
    if (state.name === 'stopped') {
      throw new AgentError('NOT_FOUND', 'Process not found: init process missing')
    }
    if (state.name !== 'created' && state.name !== 'running') throw this.unknown(id, 'INTERNAL')
    return state.parts
  }
}

/** The error for a container that does not exist; the code differs by call. */
export function unknownContainer(code: StatusCodeName): AgentError {
  return new AgentError(code, 'Invalid container id', { fault: 'caller' })
}
