import type { Os } from '../../../src/os/os.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import type { FakeOs } from '../../support/fakes/fake-os.ts'

/** An agent dies at this call to the kernel or vminit, before or after the call's effect. */
export interface Death {
  readonly step: number
  readonly when: 'before' | 'after'
}

class Killed extends Error {}

/** Consecutive agents on a machine. Each has only the descriptors that the previous agent stored. */
export class MortalAgents {
  readonly #os: FakeOs
  readonly #kept: ReadonlySet<Fd>

  /** `kept` are the descriptors of other processes. */
  constructor(os: FakeOs, kept: readonly Fd[]) {
    this.#os = os
    this.#kept = new Set(kept)
  }

  start(death?: Death): {
    readonly os: Pick<Os, 'clock' | 'streams' | 'descriptors'>
    isDead(): boolean
    steps(): number
  } {
    let isDead = false
    let steps = 0
    const die = () => {
      isDead = true
      this.end()
    }
    const mortal = <Part extends object>(part: Part): Part =>
      new Proxy(part, {
        get: (target, key) => {
          const member: unknown = Reflect.get(target, key, target)
          if (typeof member !== 'function') return member
          return (...args: unknown[]): unknown => {
            if (isDead) throw new Killed()
            steps += 1
            if (steps === death?.step && death.when === 'before') die()
            if (isDead) throw new Killed()
            const result: unknown = member.apply(target, args)
            if (steps !== death?.step) return result
            if (result instanceof Promise) result.catch(() => {})
            die()
            throw new Killed()
          }
        },
      })
    const { clock, streams, descriptors } = this.#os
    return {
      os: { clock, streams: mortal(streams), descriptors: mortal(descriptors) },
      isDead: () => isDead,
      steps: () => steps,
    }
  }

  /** Ends an agent: closes its descriptors and hands the stored ones over. */
  end(): void {
    const { streams, descriptors } = this.#os
    const stored = new Set(descriptors.fds)
    for (const fd of streams.openFds) if (!this.#kept.has(fd) && !stored.has(fd)) streams.close(fd)
    descriptors.restart()
  }
}
