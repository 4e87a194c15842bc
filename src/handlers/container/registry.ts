import { abortable } from '../../base/abort.ts'
import { AgentError, type StatusCodeName } from '../../base/errors.ts'
import { isWithin } from '../../base/paths.ts'
import { Container, type ContainerParts } from './container.ts'

/** A container that was created, and its parts. */
export interface Found {
  readonly container: Container
  readonly parts: ContainerParts
}

/** The containers of the sandbox by id, those being created included. */
export class ContainerRegistry {
  readonly #containers = new Map<string, Container>()

  /**
   * Takes an id, and the place of its cgroup, for a container about to be created. Throws, touching nothing, INTERNAL
   * when the id is in use, INVALID_ARGUMENT when the cgroup is another container's, above or below it: what ends all in
   * a cgroup would end both.
   */
  add(id: string, cgroupPath: string): Container {
    const present = this.#containers.get(id)
    if (present !== undefined) {
      throw new AgentError(
        'INTERNAL',
        `container id '${id}' is in use by a container that is ${present.state.name}`,
      )
    }
    for (const other of this.#containers.values()) {
      if (isWithin(cgroupPath, other.cgroupPath) || isWithin(other.cgroupPath, cgroupPath)) {
        const where = `${other.cgroupPath} is the cgroup of container '${other.id}'`
        throw new AgentError('INVALID_ARGUMENT', `Linux.CgroupsPath: '${cgroupPath}' cannot be: ${where}`)
      }
    }
    const container = new Container(id, cgroupPath)
    this.#containers.set(id, container)
    return container
  }

  /** Takes a container out, whose creation failed or which was removed, and wakes who waits for it. */
  drop(container: Container): void {
    this.#containers.delete(container.id)
    container.abandon()
  }

  tryGet(id: string): Container | undefined {
    return this.#containers.get(id)
  }

  list(): Container[] {
    return [...this.#containers.values()]
  }

  /** The container as things stand. Throws `code` `Invalid container id` for one that is not there, or not yet. */
  get(id: string, code: StatusCodeName): Found {
    const container = this.#containers.get(id)
    if (container === undefined || !('parts' in container.state)) throw unknownContainer(code)
    return { container, parts: container.state.parts }
  }

  /** The container, once its creation is through. Throws like `find`, or what `signal` is aborted with. */
  async waitFor(id: string, code: StatusCodeName, signal: AbortSignal): Promise<Found> {
    const state = this.#containers.get(id)?.state
    if (state?.name === 'creating') await abortable(state.settled, signal)
    return this.get(id, code)
  }
}

/** What is answered about a container that does not exist (behaviour spec, section B.5: the code differs by call). */
export function unknownContainer(code: StatusCodeName): AgentError {
  return new AgentError(code, 'Invalid container id')
}
