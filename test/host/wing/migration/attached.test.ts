import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import {
  AttachRequest,
  AttachResponse,
  ChangeStateRequest_Change as Change,
} from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { ConsoleIO } from '../../../../src/gen/vm.ts'
import { NO_CONFIGURATION } from '../../../../src/host/service/configuration.ts'
import { type Daemon, startDaemon } from '../../../../src/host/service/daemon.ts'
import { daemonClient, type OpenStream } from '../../../support/host-wing/running-daemon.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { CountingMachines } from '../../../support/wing/counting-machine.ts'
import { leftovers } from '../../../support/wing/leftovers.ts'

const ENDED =
  'instance web: the machine was saved: once it is resumed, want Attach again from the offset, and another console'
const FEW = 50

describe('who is attached to a machine that is suspended', () => {
  const state = join(temporaryFolder(), 'state')
  const host = new CountingMachines(state)
  let daemon: Daemon
  let client: ReturnType<typeof daemonClient>

  beforeEach(async () => {
    mkdirSync(state, { recursive: true })
    const options = { stateFolder: state, configuration: NO_CONFIGURATION, mock: false }
    daemon = await startDaemon({ ...options, acceleration: 'tcg', log: silentLogger() })
    client = daemonClient(daemon.socket)
    await client.instances.ensureInstance(host.request())
    await client.instances.changeState({ key: 'web', change: Change.RUN })
  })

  afterEach(async () => {
    await client.instances.remove({ key: 'web' }).catch(() => {})
    await client.instances.deleteSaved({ name: 'one' })
    client.close()
    await daemon.close()
    expect(leftovers(state)).toEqual([])
  })

  function attach(offset: bigint): OpenStream {
    const stream = client.open('microvm.instance.v1.InstanceService/Attach')
    stream.call.end(AttachRequest.encode({ key: 'web', port: 0, offset }).finish())
    return stream
  }

  const suspend = () => client.instances.suspendInstance({ key: 'web', name: 'one' })

  it('is told that it was, and goes on from its offset once it is resumed, with each byte once', async () => {
    const before = attach(0n)
    await expect.poll(() => bytesOf(before).length).toBeGreaterThan(FEW)
    await suspend()
    await expect(before.ended).rejects.toMatchObject({ code: 'ABORTED', message: ENDED })
    const first = bytesOf(before)
    await client.instances.ensureInstance({ properties: { key: 'web' }, saved: { name: 'one' } })
    const after = attach(BigInt(first.length))
    await expect.poll(() => bytesOf(after).length).toBeGreaterThan(FEW)
    expect(AttachResponse.decode(after.answers[0] ?? Buffer.alloc(0)).offset).toBe(BigInt(first.length))
    after.call.cancel()
    const all = Buffer.concat([first, bytesOf(after)])
    expect(all.findIndex((byte, at) => at > 0 && byte !== ((all[at - 1] ?? 0) + 1) % 256)).toBe(-1)
  })

  it('to its console too, and ./microvm console says so in one line', async () => {
    const metadata = { instance: 'web' }
    const open = client.open('metropolis.proto.vm.OOBManagement/Console', { metadata })
    const hasCome = Promise.withResolvers<void>()
    const shown = microvm(['console', 'web', '--socket', daemon.socket], {
      onOutput: () => hasCome.resolve(),
    })
    await hasCome.promise
    await expect.poll(() => open.answers.map((each) => ConsoleIO.decode(each).data).length).toBeGreaterThan(0)
    await suspend()
    await expect(open.ended).rejects.toMatchObject({ code: 'ABORTED', message: ENDED })
    expect(await shown).toMatchObject({ status: 1, stderr: `microvm: console: ABORTED: ${ENDED}\n` })
  })
})

function bytesOf({ answers }: OpenStream): Buffer {
  return Buffer.concat(answers.map((each) => AttachResponse.decode(each).data))
}
