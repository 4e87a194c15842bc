import { beforeEach, describe, expect, it } from 'vitest'
import { cancelled, neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { guestDetails } from '../../../src/handlers/guest/details.ts'
import { ociRuntime } from '../../../src/handlers/oci-runtime/client.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

const RUNC = '/usr/sbin/runc'
const WITH_SECCOMP = 'runc version 1.3.6\nlibseccomp: 2.6.0\n'
const BLOCK_SIZE = '/sys/devices/system/memory/block_size_bytes'
const ASK_ALL = { memBlockSize: true, memHotplugProbe: true }
const ASK_NOTHING = { memBlockSize: false, memHotplugProbe: false }

describe('GetGuestDetails', () => {
  let os: FakeOs

  beforeEach(async () => {
    os = new FakeOs()
    await os.files.put(RUNC, '')
    os.tools.script(() => ({ stdout: WITH_SECCOMP }))
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
    it('is read from the version of the runtime, which is asked for once', async () => {
      os.tools.script(() => ({ stdout: WITH_SECCOMP }))
      const ask = guest()
      await Promise.all([ask(), ask()])
      await expect(ask()).resolves.toMatchObject(supporting(true))
      expect(os.tools.calls.map(({ argv }) => argv)).toEqual([[RUNC, '--version']])
    })

    it.each([
      ['runc version 1.0.0\nlibseccomp: 2.5.4\n', true],
      ['crun version 1.8.1\n+SYSTEMD +SECCOMP +EBPF +YAJL\n', true],
      ['crun version 1.8.1\n+SYSTEMD +EBPF +YAJL\n', false],
    ])('is read from the version when the runtime has no features command: %j', async (stdout, supported) => {
      os.tools.script(([, command]) =>
        command === 'features' ? { exitCode: 1, stderr: 'unknown command features' } : { stdout },
      )
      await expect(guest()()).resolves.toMatchObject(supporting(supported))
    })

    it.each([true, false])(
      'is read from the features of a runtime whose version does not tell: %j',
      async (has) => {
        os.tools.script(([, command]) =>
          command === 'features' ? features(has) : { stdout: 'runsc version 20260101.0\nspec: 1.1.0\n' },
        )
        await expect(guest()()).resolves.toMatchObject(supporting(has))
      },
    )

    it('is that of the program that has taken the place of another one', async () => {
      os.tools.script(() => ({ stdout: WITH_SECCOMP }))
      const ask = guest()
      await expect(ask()).resolves.toMatchObject(supporting(true))
      await os.files.put('/usr/sbin/other', '')
      await os.files.rename('/usr/sbin/other', RUNC)
      os.tools.script(() => features(false))
      await expect(ask()).resolves.toMatchObject(supporting(false))
    })

    it('is false when the runtime is missing', async () => {
      await os.files.removeTree(RUNC)
      await expect(guest()()).resolves.toMatchObject(supporting(false))
    })

    it.each([
      ['cannot be run', () => Promise.reject(new Error('ENOENT'))],
      ['answers nonsense', () => ({ stdout: '{"linux":' })],
      ['does not even tell its version', () => ({ exitCode: 1 })],
    ])('is false when the runtime %s, and the next call asks again', async (_, answer) => {
      os.tools.script(answer)
      const ask = guest()
      await expect(ask()).resolves.toMatchObject(supporting(false))
      os.tools.script(() => features(true))
      await expect(ask()).resolves.toMatchObject(supporting(true))
      os.tools.script(() => features(false))
      await expect(ask()).resolves.toMatchObject(supporting(true))
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
    const runtime = ociRuntime(os, {
      ...{ kind: 'runc', binary: RUNC, root: '/run/rt', log: silentLogger(), containerVsock: 'deny' },
    })
    const context = {
      os,
      initMode: true,
      version: '1.2.3',
      storageHandlers: ['local', 'blk'],
      deviceHandlers: ['scsi', 'blk'],
      supportsPolicy: () => true,
      supportsSeccomp: runtime.seccomp.isSupported,
    }
    return (request = ASK_NOTHING, signal = neverAborted) => guestDetails(context, request, signal)
  }

  function details(request: typeof ASK_ALL) {
    return guest()(request)
  }
})

function supporting(supportsSeccomp: boolean) {
  return { agentDetails: { supportsSeccomp } }
}

function features(enabled: boolean) {
  return { stdout: JSON.stringify({ ociVersionMax: '1.0.2', linux: { seccomp: { enabled } } }) }
}
