/** Users of this host that nothing else has. */
export interface UidRange {
  readonly first: number
  readonly count: number
}

/** Beyond the ranges of users, of user namespaces (/etc/subuid) and of systemd's containers (UIDS-GIDS of systemd.io). */
export const UIDS: UidRange = { first: 0x7000_0000, count: 65_536 }
