import { randomBytes } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { Identity, RenameRequest } from '../../src/gen/microvm/agent/v1/lifecycle.ts'
import { cgroupFile, inNamespaceOf } from '../support/host/agent-pod.ts'
import { DISK, LifecycleStage, STAYS, type Victim } from '../support/kills/lifecycle-stage.ts'
import { AS_LONG_AS_ASKED_MS, oneRun, randomOf, shareOf, Tally } from '../support/kills/share.ts'

interface Played {
  readonly play: (ids: readonly string[]) => Promise<void>
  /** What a caller does next, whether the call succeeded or was lost with the broker. */
  readonly end: () => Promise<void>
}

const CALLS: Readonly<Record<string, (stage: LifecycleStage) => Played>> = {
  Detach: (stage) => ({
    play: async () => {
      const { streams } = await stage.connection.lifecycle.detach({ timeoutMs: 60_000 })
      expect(streams.map(({ stream }) => stream)).toContain('stderr')
    },
    end: async () => void (await stage.connection.lifecycle.attach({})),
  }),
  Resumed: (stage) => {
    const identity = Identity.fromPartial({ dns: ['nameserver 10.9.9.9'] })
    const request = { generation: randomBytes(8).toString('hex'), seed: randomBytes(32), identity }
    const repaired = async () => {
      const { lifecycle } = stage.connection
      const { number } = await lifecycle.resumed(request)
      const told = await lifecycle.getResume({ number, timeoutMs: 60_000 })
      expect(told).toMatchObject({ number, state: 'ready', randomness: 'renewed' })
      expect(told.steps).toHaveLength(7)
      return number
    }
    return {
      play: async () => void (await repaired()),
      end: async () => {
        const number = await repaired()
        // There was one repair for the generation, for the next one has the next number.
        request.generation += ', the next one'
        expect(await repaired()).toBe(number + 1n)
      },
    }
  },
  Quiesce: (stage) => ({
    play: async () => {
      const { fileSystems } = await stage.connection.lifecycle.quiesce({})
      expect(fileSystems).toEqual([DISK])
    },
    end: async () => {
      await stage.connection.lifecycle.thaw({})
      const state = () => cgroupFile(stage.started, 'freezer', STAYS, 'state').trim()
      await vi.waitFor(() => expect(state()).toBe('THAWED'), { timeout: 20_000 })
      inNamespaceOf(stage.started, 'touch', `${DISK}/file`)
    },
  }),
  Rename: (stage) => {
    let ids: readonly string[] = []
    const anew = (id: string) => `new-${id}`
    const same = (id: string) => id
    const rename = async (of: (id: string) => string, to: (id: string) => string) => {
      const containers = ids.map((id) => ({ oldId: of(id), newId: to(id) }))
      const hostname = to('podname')
      const names = { sandboxId: to('pod'), hostname, dns: [`nameserver 10.0.0.${hostname.length}`] }
      await stage.connection.lifecycle.rename(RenameRequest.fromPartial({ containers, ...names }))
    }
    /** All names are of one kind. */
    const isAnew = async () => {
      const { introspection } = stage.connection
      const { id } = await introspection.getSandbox({})
      const { containers } = await introspection.listContainers({ containerId: '' })
      const hostname = inNamespaceOf(stage.started, 'nsenter', '--uts=/run/sandbox-ns/uts', 'hostname')
      const to = id === anew('pod') ? anew : same
      expect([id, hostname]).toEqual([to('pod'), `${to('podname')}\n`])
      expect(containers.map(({ containerId }) => containerId).sort()).toEqual(ids.map(to).sort())
      return to === anew
    }
    return {
      play: async (all) => {
        ids = all
        await rename(same, anew)
      },
      end: async () => {
        if (await isAnew()) await rename(anew, same)
        expect(await isAnew()).toBe(false)
      },
    }
  },
}

const VICTIMS: readonly Victim[] = ['broker', 'container']
const share = shareOf('steps')
/** Of each call and victim. */
const kills = Math.ceil(share / 15)

describe.skipIf(share === 0).each(VICTIMS)('a %s that dies at a step', (victim) => {
  it.each(Object.entries(CALLS))(
    'of %s leaves the pod whole',
    { timeout: AS_LONG_AS_ASKED_MS },
    async (name, call) => {
      const random = randomOf(`${victim} ${name}`)
      const tally = new Tally(`${name}: ${victim}`)
      let stage = await LifecycleStage.start()
      const playAt = async (step: number) => {
        if (stage.isWorn) {
          await stage.stop()
          stage = await LifecycleStage.start()
        }
        return oneRun(`${name}, step ${step}`, stage.started, stage.play(victim, step, call(stage)))
      }
      try {
        const { steps } = await playAt(0)
        expect(steps.length).toBeGreaterThan(0)
        for (let kill = 1; kill <= kills && kill <= steps.length; kill++) {
          const step =
            kills >= steps.length ? kill : 1 + Math.floor((steps.length * (kill - random())) / kills)
          const { hasDied } = await playAt(step)
          tally.add(hasDied ? 1 : 0)
        }
      } finally {
        await stage.stop()
      }
      tally.end()
      expect(tally.kills).toBeGreaterThan(0)
    },
  )
})
