import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { guestDetails } from '../../../src/handlers/guest/details.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const BLOCK_SIZE = '/sys/devices/system/memory/block_size_bytes'
const ASK_ALL = { memBlockSize: true, memHotplugProbe: true }
const ASK_NOTHING = { memBlockSize: false, memHotplugProbe: false }

describe('GetGuestDetails', () => {
  let os: FakeOs

  beforeEach(() => {
    os = new FakeOs()
    os.tools.script(([, command]) => (command === 'features' ? features(true) : undefined))
  })

  it('describes the agent', async () => {
    await expect(details(ASK_NOTHING)).resolves.toEqual({
      memBlockSizeBytes: 0n,
      supportMemHotplugProbe: false,
      agentDetails: {
        version: '1.2.3',
        initDaemon: true,
        deviceHandlers: ['blk', 'scsi'],
        storageHandlers: ['blk', 'local'],
        supportsSeccomp: true,
        extraFeatures: ['agent-policy', 'seccomp'],
      },
    })
  })

  it.each([
    ['10000000\n', 268_435_456n],
    ['100', 256n],
    ['8000000000000000', 2n ** 63n],
  ])('reads the memory block size %j as hexadecimal', async (text, bytes) => {
    await os.files.put(BLOCK_SIZE, text)
    await expect(details(ASK_ALL)).resolves.toMatchObject({ memBlockSizeBytes: bytes })
  })

  it.each(['', '\n', 'xyz', '-100', '0x100'])('refuses the memory block size %j', async (text) => {
    await os.files.put(BLOCK_SIZE, text)
    await expect(details(ASK_ALL)).rejects.toThrow('Invalid block size')
    await expect(details(ASK_NOTHING)).resolves.toMatchObject({ memBlockSizeBytes: 0n })
  })

  it('reports the block size 0 when memory has no blocks', async () => {
    await expect(details(ASK_ALL)).resolves.toMatchObject({ memBlockSizeBytes: 0n })
  })

  it('reports on request whether memory can be probed', async () => {
    await os.files.put('/sys/devices/system/memory/probe', '')
    await expect(details(ASK_ALL)).resolves.toMatchObject({ supportMemHotplugProbe: true })
    await expect(details(ASK_NOTHING)).resolves.toMatchObject({ supportMemHotplugProbe: false })
  })

  describe('supportsSeccomp', () => {
    it('asks the runtime once', async () => {
      const ask = guest()
      await Promise.all([ask(ASK_NOTHING, neverAborted), ask(ASK_NOTHING, neverAborted)])
      expect(os.tools.calls.map(({ argv }) => argv)).toEqual([['/usr/sbin/runc', 'features']])
    })

    it('is false when the runtime was built without seccomp', async () => {
      os.tools.script(() => features(false))
      await expect(seccomp()).resolves.toBe(false)
    })

    it.each([
      ['runc version 1.0.0\nlibseccomp: 2.5.4\n', true],
      ['crun version 1.8.1\n+SYSTEMD +SECCOMP +EBPF +YAJL\n', true],
      ['crun version 1.8.1\n+SYSTEMD +EBPF +YAJL\n', false],
    ])('is read from the version when the runtime has no features command: %j', async (stdout, supported) => {
      os.tools.script(([, command]) =>
        command === 'features' ? { exitCode: 1, stderr: 'unknown command features' } : { stdout },
      )
      await expect(seccomp()).resolves.toBe(supported)
    })

    it.each([
      ['cannot be run', () => Promise.reject(new Error('ENOENT'))],
      ['answers nonsense', () => ({ stdout: '{"linux":' })],
      ['does not even tell its version', () => ({ exitCode: 1 })],
    ])('is false when the runtime %s, and the next call asks again', async (_, answer) => {
      os.tools.script(answer)
      const ask = guest()
      await expect(ask(ASK_NOTHING, neverAborted)).resolves.toMatchObject(supporting(false))
      os.tools.script(() => features(true))
      await expect(ask(ASK_NOTHING, neverAborted)).resolves.toMatchObject(supporting(true))
      os.tools.script(() => features(false))
      await expect(ask(ASK_NOTHING, neverAborted)).resolves.toMatchObject(supporting(true))
    })

    it('is no longer waited for when the call is cancelled', async () => {
      os.tools.script(() => new Promise(() => {}))
      const call = new AbortController()
      const asked = guest()(ASK_NOTHING, call.signal)
      call.abort(cancelled())
      await expect(asked).rejects.toMatchObject({ code: 'CANCELLED' })
    })
  })

  function guest() {
    return guestDetails({
      os,
      log: silentLogger(),
      runtime: { binary: '/usr/sbin/runc' },
      initMode: true,
      version: '1.2.3',
      storageHandlers: ['local', 'blk'],
      deviceHandlers: ['scsi', 'blk'],
      supportsPolicy: () => true,
    })
  }

  function details(request: typeof ASK_ALL) {
    return guest()(request, neverAborted)
  }

  async function seccomp() {
    return (await details(ASK_NOTHING)).agentDetails?.supportsSeccomp
  }
})

function supporting(supportsSeccomp: boolean) {
  return { agentDetails: { supportsSeccomp } }
}

function features(enabled: boolean) {
  return { stdout: JSON.stringify({ ociVersionMax: '1.0.2', linux: { seccomp: { enabled } } }) }
}
