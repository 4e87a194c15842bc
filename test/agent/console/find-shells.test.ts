import { describe, expect, it } from 'vitest'
import { warnOfMissingShell } from '../../../src/agent/console/find-shells.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'

describe('warnOfMissingShell', () => {
  it('says what makes an image with a shell, unless there is one', async () => {
    const [{ files }, { lines, log }] = [new FakeOs(), recordingLog()]
    await files.makeDirectories('/bin')
    await files.write('/bin/sh', '')
    await warnOfMissingShell(files, log)
    expect(lines).toEqual([
      {
        level: 'warn',
        message: 'debug console without a shell',
        fields: { because: expect.stringMatching(/ \/bin\/sh: not executable; want one: npm run image -- /) },
      },
    ])
    await files.chmod('/bin/sh', 0o755)
    await warnOfMissingShell(files, log)
    expect(lines).toHaveLength(1)
  })
})
