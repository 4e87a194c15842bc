import { describe, expect, it } from 'vitest'
import { AgentError } from '../../../src/base/errors.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { Vm } from '../../../src/gen/microvm/controller/v1/controller.ts'
import type { HypervisorID } from '../../../src/gen/vm.ts'
import { awaitAuthority, becomeAuthoritative } from '../../../src/host/migration/move/authority.ts'
import { MOVE_SETTINGS } from '../../../src/host/migration/move/move-host.ts'
import { StandInController } from '../../support/wing/moves/stand-in-controller.ts'

const idOf = (podName: string, runId: bigint): HypervisorID => ({
  ...{ vmName: 'web', namespace: 'default', podName, runId },
})

/** A controller by which `authoritative` runs the machine. */
function asked(authoritative?: HypervisorID) {
  const controller = new StandInController()
  const vm = Vm.fromPartial({ namespace: 'default', name: 'web', authoritative, generation: 1n })
  if (authoritative !== undefined) controller.vms.set('default/web', vm)
  const settings = { ...MOVE_SETTINGS, retryMs: 1, switchoverMs: 20 }
  const ending = new AbortController()
  const question = { host: { controller, settings }, log: silentLogger(), signal: ending.signal }
  return { controller, ending, question }
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
