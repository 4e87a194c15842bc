import { expect, it } from 'vitest'
import { State } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../src/gen/microvm/instance/v1/records.ts'
import { openHostMoves } from '../../../src/host/migration/move/host-moves.ts'
import { MOVE_SETTINGS } from '../../../src/host/migration/move/move-host.ts'
import { StandInController } from '../../support/wing/moves/stand-in-controller.ts'

it('is refused for a machine that the controller does not know, whose instance is there', async () => {
  const closing = new AbortController().signal
  const host = { id: 'b', controller: new StandInController(), settings: MOVE_SETTINGS, closing }
  const moves = openHostMoves({ host } as unknown as Parameters<typeof openHostMoves>[0])
  const record = InstanceRecord.fromPartial({ properties: { key: 'web' }, current: State.AWAITING })
  const us = { namespace: 'default', vmName: 'web', podName: 'a/1', runId: 1n }
  const instance = { key: 'web', record } as unknown as Parameters<typeof moves.start>[0]
  await expect(moves.start(instance, { us, supportedMigrationProtocol: [] }, 'a')).rejects.toMatchObject({
    // A source takes NOT_FOUND for an instance that is not there yet.
    code: 'FAILED_PRECONDITION',
    message: 'us: a/1 does not run the machine, says the controller',
  })
})
