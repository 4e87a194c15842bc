import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../../src/base/errors.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { File_Access } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../../src/gen/microvm/instance/v1/records.ts'
import type { HypervisorID } from '../../../../src/gen/vm.ts'
import { awaitAuthority, becomeAuthoritative } from '../../../../src/host/migration/move/authority.ts'
import { MOVE_SETTINGS, reachedAt } from '../../../../src/host/migration/move/move-host.ts'
import { volumesOf } from '../../../../src/host/migration/move/target.ts'
import { StandInController } from '../../../support/wing/moves/stand-in-controller.ts'

const idOf = (podName: string, runId: bigint): HypervisorID => ({
  ...{ vmName: 'web', namespace: 'default', podName, runId },
})

const vmOf = (authoritative: HypervisorID): Vm =>
  Vm.fromPartial({ namespace: 'default', name: 'web', authoritative, generation: 1n })

/** A controller by which `authoritative` runs the machine. */
function asked(authoritative?: HypervisorID) {
  const controller = new StandInController()
  if (authoritative !== undefined) controller.vms.set('default/web', vmOf(authoritative))
  const settings = { ...MOVE_SETTINGS, retryMs: 1, switchoverMs: 20 }
  const ending = new AbortController()
  const question = { host: { controller, settings }, log: silentLogger(), signal: ending.signal }
  return { controller, ending, question }
}

const TARGET = {
  replaceComponents: {
    data: { file: { path: '/disks/data', access: File_Access.READ_WRITE } },
    shared: { file: { path: '/shared/logs', access: File_Access.READ_WRITE } },
  },
}

describe('who runs a machine that was handed over', () => {
  const [first, second, third] = [idOf('a/1', 1n), idOf('a/1', 2n), idOf('a/1', 3n)]
  const other = idOf('b/1', 9n)

  it('is this host after an earlier try of its own that was carried out', async () => {
    const { controller, question } = asked(second)
    const settled = becomeAuthoritative({ ...question, us: third, them: first, givesUp: false })
    expect(await settled).toBe(true)
    expect(controller.chain).toEqual(['a/1#3'])
  })

  it('is this host where the controller does not tell of its volumes at once', async () => {
    const { controller, question } = asked(first)
    let calls = 0
    controller.before = () => {
      if (++calls < 3) throw new AgentError('UNAVAILABLE', 'away')
    }
    const instance = { record: InstanceRecord.fromPartial({ properties: { key: 'web' }, target: TARGET }) }
    const host = { controller, id: 'b' }
    // The shared disk is replaced with one of the same path, and was not copied.
    const volumes = () => volumesOf(instance, ['data'], host)
    expect(await becomeAuthoritative({ ...question, us: other, them: first, givesUp: true, volumes })).toBe(
      true,
    )
    expect(controller.vms.get('default/web')?.volumes).toMatchObject([
      { key: 'data', host: 'b', path: '/disks/data' },
    ])
  })

  it('is another host also when the wait was ended meanwhile', async () => {
    const { ending, question } = asked(other)
    ending.abort(new AgentError('ABORTED', 'killed'))
    expect(await becomeAuthoritative({ ...question, us: second, them: first, givesUp: false })).toBe(false)
  })

  it('is nobody while the controller does not know the machine', async () => {
    const { controller, ending, question } = asked()
    let calls = 0
    controller.before = (call) => {
      if (call === 'switchover' && ++calls === 3) ending.abort(new AgentError('ABORTED', 'killed'))
    }
    await expect(
      becomeAuthoritative({ ...question, us: second, them: first, givesUp: false }),
    ).rejects.toThrow('killed')
    expect(calls).toBe(3)
  })

  it('is this host when a try that was given up is carried out late', async () => {
    const { controller, question } = asked(first)
    let given = false
    controller.before = (call) => {
      if (call === 'switchover') throw new AgentError('UNAVAILABLE', 'slow')
      // The first answer to the question what has become of the tries.
      if (given) controller.vms.set('default/web', vmOf(other))
      given = true
    }
    expect(await becomeAuthoritative({ ...question, us: other, them: first, givesUp: true })).toBe(true)
  })

  it('is another once the source has taken a new run id, or no controller carries out a try so late', async () => {
    const { controller, question } = asked(first)
    controller.before = (call) => {
      if (call === 'switchover') throw new AgentError('UNAVAILABLE', 'slow')
    }
    const late = { ...question.host, settings: { ...question.host.settings, lateMs: 50 } }
    const asks = { ...question, us: other, them: first, givesUp: true }
    expect(await becomeAuthoritative({ ...asks, host: late })).toBe(false)
    controller.vms.set('default/web', vmOf(second))
    expect(await becomeAuthoritative(asks)).toBe(false)
  })

  it('is asked without a switchover where the memory is gone', async () => {
    const { controller, question } = asked(first)
    let calls = 0
    controller.before = () => {
      if (++calls < 3) throw new AgentError('UNAVAILABLE', 'away')
    }
    expect(await awaitAuthority({ ...question, us: other })).toBe(false)
    expect(controller.chain).toEqual([])
  })
})

it('a port of a host is told as others reach it', () => {
  expect(reachedAt({ endpoint: '192.0.2.1:7443' }, 9)).toBe('192.0.2.1:9')
  expect(reachedAt({ endpoint: '[2001:db8::1]:7443' }, 9)).toBe('[2001:db8::1]:9')
})
