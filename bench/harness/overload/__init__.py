"""Who is still served in time when there is more to do than one core can: what `bench/overload` is made of."""
