import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { abortable, neverAborted } from '../../../../src/base/abort.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { RunLeaseUpdate } from '../../../../src/gen/vm.ts'
import { findHolder, killHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import { type LeaseController, MachineLease } from '../../../../src/host/instance/leases/machine-lease.ts'
import { fencedTap } from '../../../../src/host/instance/leases/network-fence.ts'
import { linuxClock } from '../../../../src/os/clock.ts'
import { realNative } from '../../../support/os/real-native.ts'
import { senderArgv } from './frame-sender.ts'

/**
 * The daemon of one machine of LM_FULL_LEASES, which is a sender of frames and what the fourth word starts. Its parent process is the
 * controller, and is told `ready` at the start.
 */
const [folder = '', network = '', tap = '', writer = ''] = process.argv.slice(2)
const enter = ['nsenter', `--net=${network}`, '--']
const tell = (message: object) => process.send?.(message)

const waiting = new Map<string, (update: RunLeaseUpdate) => void>()
process.on('message', (message: { readonly nonce: string; readonly update: string }) => {
  waiting.get(message.nonce)?.(RunLeaseUpdate.decode(Buffer.from(message.update, 'hex')))
})
process.on('disconnect', () => process.exit())

const controller: LeaseController = {
  ensureVm: async () => {},
  removeVm: async () => {},
  renewLease: async ({ nonce }, signal) => {
    const text = Buffer.from(nonce).toString('hex')
    const answered = new Promise<RunLeaseUpdate>((resolve) => waiting.set(text, resolve))
    tell({ nonce: text })
    return await abortable(answered, signal).finally(() => waiting.delete(text))
  },
  getVm: async () => Vm.create(),
  fenceVolume: async () => {
    throw new Error('no other host')
  },
  async *runLease(_, signal) {
    await abortable(new Promise<never>(() => {}), signal)
  },
}

const run = async (commands: string) => {
  const [program = '', ...argv] = [...enter, 'nft', '--', commands]
  await promisify(execFile)(program, argv)
}
const holder = await findHolder(folder)
if (holder === undefined) throw new Error('no holder')
const lease = new MachineLease(
  {
    us: () => ({ vmName: 'web', namespace: 'default', podName: 'a/web', runId: 1n }),
    isOnItsWay: () => false,
    settings: {},
    controller,
    clock: linuxClock(await realNative()),
    filters: { check: async () => {}, apply: async () => {}, run },
    log: silentLogger(),
    // As the undo of an instance's steps does with a holder that does not answer.
    terminate: () => void killHolder(folder),
  },
  { isRegistered: true },
)
await lease.acquire(holder, neverAborted)
const { pid } = await holder.start({ name: 'qemu', output: 'log', argv: senderArgv({ enter }, tap, 'br0') })
if (writer !== '') await holder.start({ name: 'writer', output: 'log', argv: ['/bin/sh', '-c', writer] })
const isThere = () => promisify(execFile)('nsenter', [`--net=${network}`, '--', 'ip', 'link', 'show', tap])
while (
  !(await isThere().then(
    () => true,
    () => false,
  ))
);
await lease.fence(fencedTap(folder, 'net', tap))
tell({ ready: pid })
