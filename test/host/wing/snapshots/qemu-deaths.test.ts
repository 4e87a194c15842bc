import { afterEach, describe, expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import {
  ChangeStateRequest_Change as Change,
  State,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import type { Registry } from '../../../../src/host/instance/registry/registry.ts'
import { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { BLOCK, io } from '../../../support/wing/layer-bytes.ts'
import { LayeredDisks } from '../../../support/wing/layered-disks.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

/** The commands at which QEMU dies, and the call in which it gets them. */
const DEATHS = [
  ['blockdev-add', 'snapshot'],
  ['stop', 'snapshot'],
  ['transaction', 'snapshot'],
  ['cont', 'snapshot'],
  ['block-commit', 'merge'],
  ['stop', 'merge'],
  ['job-complete', 'merge'],
  ['cont', 'merge'],
  ['job-dismiss', 'merge'],
] as const
const SOME: readonly string[] = ['transaction', 'block-commit', 'job-complete', 'cont']

/** `npm run instances` takes all moments, and this group some. */
const ALL = process.env[INSTANCES.lives] !== undefined
const WHENS = ALL ? (['before', 'after'] as const) : (['after'] as const)

describe.each(ALL ? DEATHS : DEATHS.filter(([command]) => SOME.includes(command)))(
  'a machine that ends at the command %s of a %s',
  (command, call) => {
    const { command: original } = QmpClient.prototype
    afterEach(() => {
      QmpClient.prototype.command = original
    })

    it.each(WHENS)('%s it, loses no byte and goes on', async (when) => {
      const machine = new LayeredDisks()
      await machine.make()
      await machine.change(Change.RUN)
      await machine.write('root', [0, 1])
      await machine.snapshot('one')
      await machine.write('root', [0, 2], [1, 2])
      const { qemuPid } = await (await machine.open()).get('web', ADMIN)
      let isDead = false
      QmpClient.prototype.command = async function (sent, signal) {
        if (sent.execute !== command) return await original.call(this, sent, signal)
        isDead = true
        if (when === 'before') process.kill(qemuPid, 'SIGKILL')
        const answer = await original.call(this, sent, signal)
        if (when === 'after') process.kill(qemuPid, 'SIGKILL')
        return answer
      }
      const work = call === 'snapshot' ? machine.snapshot('two') : machine.rm('')
      const error = await work.then(
        () => undefined,
        (failure) => failure,
      )
      QmpClient.prototype.command = original
      expect(isDead).toBe(true)
      if (error !== undefined) expect(error).toMatchObject({ code: 'UNAVAILABLE' })
      await expect
        .poll(async () => (await (await machine.open()).get('web', ADMIN)).state)
        .toBe(State.STOPPED)
      expect(await machine.bytes('root')).toEqual([2, 2, 0, 0])
      await machine.change(Change.RUN)
      await machine.write('root', [2, 3])
      await machine.rm('')
      await machine.stop()
      expect([machine.files, await machine.bytes('root')]).toEqual([[], [2, 2, 3, 0]])
      expect(await machine.remove()).toEqual([])
    })
  },
)

describe('a host that fails', () => {
  const { command: original } = QmpClient.prototype
  afterEach(() => {
    QmpClient.prototype.command = original
  })

  it('once a merged guest has gone on, loses nothing that it wrote since', async () => {
    const kept = memoryRegistry()
    const failed = Promise.withResolvers<void>()
    let isFailed = false
    const registry: Registry = {
      ...kept,
      commit: async (changes) => await (isFailed ? new Promise(() => {}) : kept.commit(changes)),
    }
    const machine = new LayeredDisks()
    await machine.make(registry)
    await machine.change(Change.RUN)
    await machine.snapshot('one', 'root')
    await machine.write('root', [0, 1], [1, 1])
    const { qemuPid } = await (await machine.open()).get('web', ADMIN)
    QmpClient.prototype.command = async function (sent, signal) {
      const answer = await original.call(this, sent, signal)
      if (sent.execute !== 'cont') return answer
      await io(this, 'root', `write -P 2 ${BLOCK} ${BLOCK}`)
      isFailed = true
      process.kill(qemuPid, 'SIGKILL')
      failed.resolve()
      return answer
    }
    void machine.rm('').catch(() => {})
    await failed.promise
    QmpClient.prototype.command = original
    await machine.leave()
    const { state } = await (await machine.open(kept)).get('web', ADMIN)
    expect(state).toBe(State.STOPPED)
    expect([machine.files, await machine.bytes('root')]).toEqual([[], [1, 2, 0, 0]])
    expect(await machine.remove()).toEqual([])
  })
})
