import { checkErrno, failed } from '../errors.ts'
import { close, openFd } from '../files/node-files.ts'
import type { Native } from '../native.ts'

/** What a device of the host says of the time of day. */
export interface HostTime {
  readonly source: 'ptp' | 'rtc'
  /** Nanoseconds since 1970, if the host keeps UTC there. */
  readonly ns: bigint
  /** How far it may be behind the host's own time. */
  readonly precisionMs: number
}

/** By the first device that can be read; undefined without one. */
export async function hostTime(native: Pick<Native, 'ioctl'>): Promise<HostTime | undefined> {
  for (const read of [ptpTime, rtcTime]) {
    const time = await read(native).catch(() => undefined)
    if (time !== undefined) return time
  }
  return undefined
}

/** _IOW('=', 5, struct ptp_sys_offset): times of the system and the clock in turn (linux/ptp_clock.h). */
const PTP_SYS_OFFSET = 0x4340_3d05
const PTP_BYTES = 832
/** The samples begin after `n_samples` and three reserved numbers; each is s64 seconds, u32 nanoseconds, u32 reserved. */
const PTP_FIRST = 16
const PTP_SAMPLE = 16

async function ptpTime(native: Pick<Native, 'ioctl'>): Promise<HostTime> {
  const answer = Buffer.alloc(PTP_BYTES)
  answer.writeUInt32LE(1, 0)
  await control(native, '/dev/ptp0', PTP_SYS_OFFSET, answer)
  const at = PTP_FIRST + PTP_SAMPLE
  const ns = answer.readBigInt64LE(at) * 1_000_000_000n + BigInt(answer.readUInt32LE(at + 8))
  return { source: 'ptp', ns, precisionMs: 1 }
}

/** _IOR('p', 9, struct rtc_time): nine 32-bit numbers, as struct tm has them (rtc(4)). */
const RTC_RD_TIME = 0x8024_7009
const RTC_BYTES = 36

async function rtcTime(native: Pick<Native, 'ioctl'>): Promise<HostTime> {
  const answer = Buffer.alloc(RTC_BYTES)
  await control(native, '/dev/rtc0', RTC_RD_TIME, answer)
  const field = (index: number) => answer.readInt32LE(4 * index)
  const ms = Date.UTC(1900 + field(5), field(4), field(3), field(2), field(1), field(0))
  return { source: 'rtc', ns: BigInt(ms) * 1_000_000n, precisionMs: 1000 }
}

async function control(
  native: Pick<Native, 'ioctl'>,
  path: string,
  request: number,
  argument: Buffer,
): Promise<void> {
  const fd = await openFd(path, 'r').catch(failed('open', path))
  try {
    checkErrno('read the time of', path, await native.ioctl(fd, request, argument))
  } finally {
    await close(fd)
  }
}
